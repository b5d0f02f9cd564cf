import { StrictMode } from 'react';
import { createRoot } from 'react-dom/client';

function Shell() {
  return <main>Console</main>;
}

const root = document.querySelector('#root');
if (root === null) throw new Error('the page has no place for the console');
createRoot(root).render(
  <StrictMode>
    <Shell />
  </StrictMode>,
);
