import { StrictMode } from 'react';
import { createRoot } from 'react-dom/client';
import { App } from './app.tsx';
import { applyScheme, savedScheme } from './lib/scheme.ts';
import './style/tokens.css';
import './style/base.css';
import './style/parts.css';
import './style/shell.css';

applyScheme(savedScheme());
const root = document.getElementById('root');
if (root === null) throw new Error('index.html has no #root');
createRoot(root).render(
  <StrictMode>
    <App />
  </StrictMode>,
);
