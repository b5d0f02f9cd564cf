import { answerSuite, callSuite } from '../conformance/mcp.ts';
import { listingSuite } from '../conformance/mcp-listing.ts';
import { TestMcp } from '../support/mcp.ts';

listingSuite(() => new TestMcp());
callSuite(() => new TestMcp());
answerSuite(() => new TestMcp());
