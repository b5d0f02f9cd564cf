import { join } from 'node:path';
import { defineConfig } from 'vite';

/**
 * The pages of the console, built into files that the console's listener serves. Nothing is put into the page itself:
 * its policy runs no script and no style that is not a file of its own.
 */
export default defineConfig({
  root: join(import.meta.dirname, 'src/console/app'),
  base: '/',
  // Where the environment says otherwise, as in tests, React's build for development would be made, which is slower.
  define: { 'process.env.NODE_ENV': JSON.stringify('production') },
  oxc: { jsx: { runtime: 'automatic', development: false } },
  resolve: { alias: { 'agent-runtime-host/client': join(import.meta.dirname, 'src/client/client.ts') } },
  build: {
    outDir: join(import.meta.dirname, 'dist/console'),
    emptyOutDir: true,
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
    target: 'es2022',
  },
});
