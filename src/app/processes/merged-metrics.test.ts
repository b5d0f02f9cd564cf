import { expect, test } from 'vitest';
import { mergedMetrics } from './merged-metrics.ts';

test('a metric is described once, with the samples of every process under it', () => {
  const one =
    '# HELP a Some.\n# TYPE a counter\na{process="1"} 1\n\n# HELP b Others.\n# TYPE b gauge\nb{process="1"} 5\n';
  const two = '# HELP b Others.\n# TYPE b gauge\nb{process="2"} 6\n\n# HELP c Last.\n# TYPE c gauge\n';
  expect(mergedMetrics([one, two])).toBe(
    [
      ...['# HELP a Some.', '# TYPE a counter', 'a{process="1"} 1', ''],
      ...['# HELP b Others.', '# TYPE b gauge', 'b{process="1"} 5', 'b{process="2"} 6', ''],
      ...['# HELP c Last.', '# TYPE c gauge', ''],
    ].join('\n'),
  );
});
