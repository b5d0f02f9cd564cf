import { objectOf } from './document-shapes.ts';
import type { Json } from './document-shapes.ts';

/** The document as a page for people: no script, no external address, links within. */
export function referencePage(given: object): string {
  const document = objectOf(given);
  const info = objectOf(document['info']);
  const operations = operationsOf(objectOf(document['paths']));
  const tags = listOf(document['tags']).map((tag) => {
    const name = textOf(tag['name']);
    return { name, says: textOf(tag['description']), own: operations.filter((one) => one.tag === name) };
  });
  const shapes = Object.entries(objectOf(objectOf(document['components'])['schemas']));
  const parameters = objectOf(objectOf(document['components'])['parameters']);
  const nav = tags.map(
    ({ name, own }) =>
      `<h2>${escaped(name)}</h2><ul>${own
        .map((one) => `<li><a href="#${one.id}">${escaped(one.summary)}</a></li>`)
        .join('')}</ul>`,
  );
  const sections = tags.map(
    ({ name, says, own }) =>
      `<section><h2>${escaped(name)}</h2><p>${escaped(says)}</p>${own
        .map((one) => operationHtml(one, parameters))
        .join('')}</section>`,
  );
  const title = `${textOf(info['title'])} ${textOf(info['version'])}`;
  return `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">
<title>${escaped(title)}</title><style>${STYLE}</style></head><body>
<nav><p><a href="openapi.json">openapi.json</a></p>${nav.join('')}<h2><a href="#shapes">Shapes</a></h2></nav>
<main><h1>${escaped(title)}</h1>${paragraphs(textOf(info['description']))}
${sections.join('\n')}
<section id="shapes"><h2>Shapes</h2>${shapes.map(([name, schema]) => shapeHtml(name, schema)).join('')}</section>
</main></body></html>
`;
}

interface Operation {
  readonly id: string;
  readonly tag: string;
  readonly method: string;
  readonly path: string;
  readonly summary: string;
  readonly operation: Json;
}

const STYLE = `:root{color-scheme:light dark}*{box-sizing:border-box}
body{margin:0;font:15px/1.5 system-ui,sans-serif;display:grid;grid-template-columns:18rem minmax(0,1fr)}
nav{position:sticky;top:0;height:100vh;overflow:auto;padding:1rem;border-right:1px solid #8884}
nav h2{font-size:.9rem;margin:1rem 0 .2rem}nav ul{list-style:none;margin:0;padding:0;font-size:.85rem}
main{padding:1rem 2rem 6rem;max-width:60rem}a{color:inherit}
article{border-top:1px solid #8884;padding:1rem 0}h3{margin:0 0 .3rem}
code,pre{font:13px/1.45 ui-monospace,monospace}pre{overflow:auto;padding:.6rem;background:#8881;border-radius:.3rem}
table{border-collapse:collapse;width:100%;font-size:.9rem}td{border-top:1px solid #8883;padding:.2rem .6rem .2rem 0;vertical-align:top}
.m{font-weight:700;margin-right:.5rem}@media(max-width:50rem){body{display:block}nav{position:static;height:auto}}`;

function operationsOf(paths: Json): Operation[] {
  return Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(objectOf(methods)).map(([method, value]) => {
      const operation = objectOf(value);
      const [tag] = Array.isArray(operation['tags']) ? operation['tags'].map(textOf) : [];
      const [id, summary] = [textOf(operation['operationId']), textOf(operation['summary'])];
      return { id, tag: tag ?? '', method: method.toUpperCase(), path, summary, operation };
    }),
  );
}

function operationHtml({ id, method, path, summary, operation }: Operation, shared: Json): string {
  const { description, parameters, requestBody, responses } = operation;
  const body = objectOf(objectOf(requestBody)['content']);
  const example = objectOf(Object.values(body)[0])['example'];
  const taken = listOf(parameters).map((one) => resolved(one, shared));
  const rows = taken.map((one) => [
    `<code>${escaped(textOf(one['name']))}</code>`,
    `${escaped(textOf(one['in']))}${one['required'] === true ? ', required' : ''}`,
    typeHtml(one['schema']),
    escaped(textOf(one['description'] ?? '')),
  ]);
  const answers = Object.entries(objectOf(responses)).map(([status, answer]) => [
    `<code>${escaped(status)}</code>`,
    contentHtml(objectOf(answer)),
  ]);
  return `<article id="${id}"><h3>${escaped(summary)}</h3>
<p><code><span class="m">${method}</span>${escaped(path)}</code> · <code>${id}</code></p>
${description === undefined ? '' : paragraphs(textOf(description))}${table(rows)}
${requestBody === undefined ? '' : `<p>Body: ${contentHtml(objectOf(requestBody))}</p>`}
${example === undefined ? '' : `<pre>${escaped(JSON.stringify(example, null, 2))}</pre>`}${table(answers)}</article>`;
}

function resolved(parameter: Json, shared: Json): Json {
  const ref = parameter['$ref'];
  return typeof ref === 'string' ? objectOf(shared[ref.slice(ref.lastIndexOf('/') + 1)]) : parameter;
}

function contentHtml(holder: Json): string {
  const ref = holder['$ref'];
  if (typeof ref === 'string')
    return `${escaped(ref.slice(ref.lastIndexOf('/') + 1))}: a <a href="#shape-Problem">Problem</a>`;
  const kinds = Object.entries(objectOf(holder['content'])).map(([type, media]) =>
    type === 'application/json'
      ? typeHtml(objectOf(media)['schema'])
      : `<code>${escaped(type)}</code> ${typeHtml(objectOf(media)['schema'])}`,
  );
  const says = typeof holder['description'] === 'string' ? escaped(holder['description']) : '';
  return [says, ...kinds].filter((text) => text !== '').join(' ');
}

function shapeHtml(name: string, schema: unknown): string {
  return `<article id="shape-${escaped(name)}"><h3>${escaped(name)}</h3>${membersHtml(objectOf(schema))}</article>`;
}

function membersHtml(schema: Json): string {
  const required = new Set(Array.isArray(schema['required']) ? schema['required'] : []);
  const members = Object.entries(objectOf(schema['properties']));
  if (members.length === 0) return `<p>${typeHtml(schema)}</p>`;
  return table(
    members.map(([name, member]) => [
      `<code>${escaped(name)}</code>${required.has(name) ? '' : ' optional'}`,
      typeHtml(member),
      escaped(textOf(objectOf(member)['description'])),
    ]),
  );
}

/** The type of a schema in one line, with links to named ones. */
function typeHtml(given: unknown): string {
  const schema = objectOf(given);
  const ref = schema['$ref'];
  if (typeof ref === 'string') {
    const name = escaped(ref.slice(ref.lastIndexOf('/') + 1));
    return `<a href="#shape-${name}">${name}</a>`;
  }
  if ('const' in schema) return `<code>${escaped(JSON.stringify(schema['const']))}</code>`;
  if (Array.isArray(schema['enum']))
    return schema['enum'].map((one) => `<code>${escaped(JSON.stringify(one))}</code>`).join(' | ');
  const union = schema['oneOf'] ?? schema['anyOf'];
  if (Array.isArray(union)) return union.map(typeHtml).join(' | ');
  if (schema['type'] === 'array') return `list of ${typeHtml(schema['items'])}`;
  const members = Object.entries(objectOf(schema['properties']));
  if (members.length > 0)
    return `{ ${members.map(([name, member]) => `<code>${escaped(name)}</code>: ${typeHtml(member)}`).join(', ')} }`;
  return escaped([schema['type'] ?? 'any', schema['format'] ?? ''].map(textOf).join(' ').trim());
}

function table(rows: readonly (readonly string[])[]): string {
  if (rows.length === 0) return '';
  return `<table>${rows.map((row) => `<tr>${row.map((cell) => `<td>${cell}</td>`).join('')}</tr>`).join('')}</table>`;
}

function paragraphs(text: string): string {
  return text
    .split('\n\n')
    .map((paragraph) => `<p>${escaped(paragraph).replaceAll(/`([^`]+)`/g, '<code>$1</code>')}</p>`)
    .join('');
}

function escaped(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;').replaceAll('"', '&quot;');
}

function listOf(value: unknown): Json[] {
  return Array.isArray(value) ? value.map(objectOf) : [];
}

function textOf(value: unknown): string {
  return typeof value === 'string' ? value : '';
}
