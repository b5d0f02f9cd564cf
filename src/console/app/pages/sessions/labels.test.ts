import { expect, it } from 'vitest';
import { labelObject, labelsIn } from './labels.ts';

it('reads labels out of what a person types, and leaves the rest', () => {
  expect(labelsIn('  team=a  env=b=c =x loose team= ')).toEqual(['team=a', 'env=b=c']);
  expect(labelObject('team=a env=b=c')).toEqual({ team: 'a', env: 'b=c' });
});
