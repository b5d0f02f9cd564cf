#!/usr/bin/env node
// The program as `npx agent-host` starts it in a checkout: with a stock Node 20, as `npm start` does.
process.argv.splice(2, 0, 'agent-host');
await import('./run.mjs');
