import { createConfig, lintFromString } from '@redocly/openapi-core';
import { openapiDocument } from './openapi.ts';

/** `npm run check`: the document under all rules of Redocly's linter, with no warning left. It needs no network. */
const config = await createConfig({
  extends: ['recommended-strict'],
  rules: {
    'operation-operationId-unique': 'error',
    'operation-operationId': 'error',
    'operation-singular-tag': 'error',
    'no-invalid-media-type-examples': 'error',
    'no-invalid-parameter-examples': 'error',
    'no-invalid-schema-examples': 'error',
    'tag-description': 'error',
    'spec-components-invalid-map-name': 'error',
  },
});
const source = JSON.stringify(await openapiDocument());
const problems = await lintFromString({ source, config });
for (const { ruleId, severity, message, location } of problems) {
  process.stdout.write(`${severity} ${ruleId}: ${message}\n    at ${location[0]?.pointer ?? ''}\n`);
}
process.exitCode = problems.length > 0 ? 1 : 0;
