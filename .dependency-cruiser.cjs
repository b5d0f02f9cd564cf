/**
 * The import laws (AGENTS.md says them in words). Three of them carry the rest: arrows point at the domain and never out
 * of it; an adapter is imported by app, by cli and by tests only; http touches neither drivers nor SQL nor JetStream.
 *
 * Tests beside the code (`*.test.ts`) may import what they need to set a scene, so most laws leave them out.
 * `scripts/layers.mjs` runs this file and refuses a run that saw fewer modules than there are.
 */
const TEST = '\\.test\\.ts$';

/** A law for one top-level folder of src: everything in src that is not named here is forbidden to it. */
const folderMayImport = (folder, allowed, comment) => ({
  name: `${folder}-imports`,
  comment,
  severity: 'error',
  from: { path: `^src/${folder}/`, pathNot: TEST },
  to: { path: '^src/', pathNot: [`^src/${folder}/`, ...allowed] },
});

const LIB = '^src/lib/';
const DOMAIN = '^src/domain/';
const STREAMS_PORT = '^src/streams/(?!(jetstream|memory)/)';
const DRIVER_PORTS = '^src/drivers/[^/]+/port\\.ts$';
/** What the other side may know of the read models: their queries, the shapes these give, and that they may be away. */
const QUERIES = '^src/projections/([^/]+/(queries|views)|unavailable)\\.ts$';
const COMMANDS = '^src/commands/';
const AUTH = '^src/auth/';
const APP = '^src/app/';
const CLI = '^src/cli/';
const CLIENT = '^src/client/';
const ARCHIVE = '^src/archive/';
const EMBEDDED = '^src/embedded/';
const IN_MEMORY = '^src/in-memory/';
const CONSOLE_APP = '^src/console/app/';
const CONSOLE_SERVER = '^src/console/server/';

/** @type {import('dependency-cruiser').IConfiguration} */
module.exports = {
  forbidden: [
    {
      name: 'domain-is-pure',
      comment:
        'The domain imports the domain, zod and a pure JSON Schema validator: no I/O, no node:*, no other folder.',
      severity: 'error',
      from: { path: DOMAIN, pathNot: TEST },
      to: { pathNot: [DOMAIN, '(^|/)node_modules/(zod|ajv|ajv-formats|re2js)/'] },
    },
    {
      name: 'turn-under-session',
      comment:
        'A session sits on its turns: what a turn needs of the session it asks for by its own types (turn/running.ts).',
      severity: 'error',
      from: { path: '^src/domain/turn/', pathNot: TEST },
      to: { path: '^src/domain/session/' },
    },
    folderMayImport('lib', [], 'lib holds leaves: it imports nothing of ours.'),
    folderMayImport('streams', [LIB], 'The log is generic: it knows no aggregate and no caller.'),
    folderMayImport('drivers', [LIB, DOMAIN], 'Drivers know the domain types they carry, and nothing above them.'),
    folderMayImport('auth', [LIB, DOMAIN, QUERIES], 'Auth looks callers up through a query port.'),
    folderMayImport(
      'commands',
      [LIB, DOMAIN, STREAMS_PORT, DRIVER_PORTS, AUTH],
      'The write side decides on folds: no projection, no engine, no http.',
    ),
    folderMayImport('projections', [LIB, DOMAIN, STREAMS_PORT], 'The read side reads the log and nothing else.'),
    folderMayImport(
      'engine',
      [LIB, DOMAIN, STREAMS_PORT, DRIVER_PORTS, COMMANDS, QUERIES],
      'The engine runs effects through ports; from the read side it takes candidate lists only.',
    ),
    folderMayImport(
      'http',
      [LIB, DOMAIN, STREAMS_PORT, AUTH, COMMANDS, QUERIES],
      'http parses, calls and maps: no drivers, no SQL, no JetStream.',
    ),
    {
      name: 'client-stands-alone',
      comment: 'The client runs wherever there is fetch: it imports nothing but itself.',
      severity: 'error',
      from: { path: CLIENT, pathNot: TEST },
      to: { pathNot: CLIENT },
    },
    {
      name: 'react-imports',
      comment: 'The hook is for the browsers of others: the client, and the React that is there.',
      severity: 'error',
      from: { path: '^src/react/', pathNot: TEST },
      to: { pathNot: ['^src/react/', CLIENT, '(^|/)node_modules/(@types/)?react/'] },
    },
    {
      name: 'console-app-imports',
      comment:
        'The pages of the console are a program of the browser: of ours they have the client, and no part of Node.',
      severity: 'error',
      from: { path: CONSOLE_APP, pathNot: TEST },
      to: { pathNot: [CONSOLE_APP, CLIENT, '(^|/)node_modules/'] },
    },
    {
      name: 'console-app-by-nobody',
      comment: 'The pages are built beside the program, which knows them as files.',
      severity: 'error',
      from: { path: '^src/', pathNot: [TEST, CONSOLE_APP] },
      to: { path: CONSOLE_APP },
    },
    {
      name: 'console-server-imports',
      comment: 'The door of the console holds keys and sessions: it knows the Host by its address alone.',
      severity: 'error',
      from: { path: CONSOLE_SERVER, pathNot: TEST },
      to: { path: '^src/', pathNot: [CONSOLE_SERVER, LIB] },
    },
    {
      name: 'console-server-by-app-and-cli-only',
      comment: 'Who opens a door knows what it leads to.',
      severity: 'error',
      from: { path: '^src/', pathNot: [TEST, APP, CLI, CONSOLE_SERVER] },
      to: { path: CONSOLE_SERVER },
    },
    folderMayImport(
      'embedded',
      [LIB, '^src/projections/read-store/connection\\.ts$'],
      'The servers that one machine brings: processes and files, and no knowledge of what is stored in them.',
    ),
    folderMayImport(
      'archive',
      [LIB, DOMAIN, STREAMS_PORT, DRIVER_PORTS, COMMANDS],
      'Backups, exports and the state of an audit are files of the log and the objects: what opens these is handed in.',
    ),
    folderMayImport(
      'cli',
      [LIB, DOMAIN, '^src/(streams|drivers|projections)/', COMMANDS, APP, ARCHIVE, EMBEDDED, CLIENT, CONSOLE_SERVER],
      'A command of the program works beside a Host or without one: it runs no turns and serves no requests.',
    ),
    folderMayImport(
      'in-memory',
      [LIB, DOMAIN, '^src/(streams|drivers)/', '^src/projections/read-store/pglite\\.ts$', APP, CLIENT],
      'The Host as a library: another root beside the program, on the same composition.',
    ),
    {
      name: 'app-imports',
      comment: 'A Host that runs needs neither the commands of the program nor what they write.',
      severity: 'error',
      from: { path: APP, pathNot: TEST },
      to: { path: [CLI, ARCHIVE] },
    },
    {
      name: 'drivers-take-domain-types-only',
      comment: 'A driver carries domain data; it never runs a domain decision.',
      severity: 'error',
      from: { path: '^src/drivers/', pathNot: TEST },
      to: {
        path: DOMAIN,
        // Rules of values, which decide nothing.
        pathNot: '^src/domain/(turn/usage|kernel/(json-schema|optional)|sandbox/(manifest|paths|search|tools))\\.ts$',
        dependencyTypesNot: ['type-only'],
      },
    },
    {
      name: 'http-takes-no-decisions',
      comment:
        'http may share schemas, error codes and types with the domain; deciding and folding go through commands.',
      severity: 'error',
      from: { path: '^src/http/', pathNot: TEST },
      to: { path: '^src/domain/.*/(decide|state|evolve)[^/]*\\.ts$', dependencyTypesNot: ['type-only'] },
    },
    {
      name: 'commands-take-auth-types-only',
      comment: 'Who the caller is arrives in the command; authenticating is over by then.',
      severity: 'error',
      from: { path: '^src/commands/', pathNot: TEST },
      to: { path: AUTH, dependencyTypesNot: ['type-only'] },
    },
    {
      name: 'log-adapters-by-app-and-cli-only',
      comment: 'What the log is kept in is chosen by app, cli and in-memory; all other code takes the port.',
      severity: 'error',
      from: { path: '^src/', pathNot: [TEST, APP, CLI, IN_MEMORY, '^src/streams/(jetstream|memory)/'] },
      to: { path: '^src/streams/(jetstream|memory)/' },
    },
    {
      name: 'driver-implementations-by-app-and-cli-only',
      comment: 'Outside its own folder a driver is known by its port.ts.',
      severity: 'error',
      from: { path: '^src/', pathNot: [TEST, APP, CLI, IN_MEMORY, '^src/drivers/'] },
      to: { path: '^src/drivers/', pathNot: DRIVER_PORTS },
    },
    {
      name: 'drivers-apart',
      comment: 'A driver sees another kind of driver by its port only.',
      severity: 'error',
      from: { path: '^src/drivers/([^/]+)/', pathNot: TEST },
      to: { path: '^src/drivers/', pathNot: ['^src/drivers/$1/', DRIVER_PORTS] },
    },
    {
      name: 'nats-in-jetstream-only',
      comment: 'The NATS client is an implementation detail of streams/jetstream.',
      severity: 'error',
      from: { path: '^src/', pathNot: [TEST, '^src/streams/jetstream/'] },
      to: { path: '(^|/)(node_modules/)?(@nats-io/|nats(/|$))' },
    },
    {
      name: 'sql-in-projections-only',
      comment: 'SQL lives in the read models, what feeds them, and the embedded Postgres.',
      severity: 'error',
      from: {
        path: '^src/',
        pathNot: [TEST, '^src/projections/', '^src/embedded/postgres\\.ts$'],
      },
      to: { path: '(^|/)node_modules/(slonik|@slonik/[^/]+|pg|@electric-sql/pglite)/' },
    },
    {
      name: 'connections-by-the-egress-client-only',
      comment:
        'A tenant that can have the Host call an address has it called by lib/egress-client.ts. The others listen, or connect to what the operator names.',
      severity: 'error',
      from: {
        path: '^src/',
        pathNot: [
          ...[TEST, '^src/lib/(egress-client|guarded-lookup)\\.ts$', EMBEDDED, CLI, IN_MEMORY],
          ...['^src/app/metrics/server\\.ts$', '^src/drivers/sandbox/(proxy|bridge/main)\\.ts$'],
          // To the API server of the cluster.
          '^src/drivers/sandbox/kubernetes/(api|exec)\\.ts$',
          // The class of answers, which its SDKs check for.
          '^src/drivers/model/client\\.ts$',
          // Listens, and calls the Host whose console it is.
          CONSOLE_SERVER,
        ],
      },
      to: {
        path: '^(node:)?(http|https|http2|net|tls|dns|dgram)(/promises)?$|(^|/)node_modules/undici/',
        dependencyTypesNot: ['type-only'],
      },
    },
    {
      name: 'large-libraries-late',
      comment:
        'What only some Hosts need is loaded when it is used, by `await import`: a start takes as long as what it loads.',
      severity: 'error',
      from: { path: '^src/', pathNot: [TEST, '^src/drivers/', IN_MEMORY] },
      to: {
        path: [
          '^src/drivers/(objects/s3|mcp/driver|sandbox/kubernetes/driver|model/(client|provider|prices))\\.ts$',
          '(^|/)node_modules/undici/',
        ],
        dynamic: false,
        dependencyTypesNot: ['type-only'],
      },
    },
    {
      name: 'fastify-in-http-only',
      comment: 'The web framework stays at the edge.',
      severity: 'error',
      from: { path: '^src/', pathNot: [TEST, '^src/(http|app)/'] },
      to: { path: '(^|/)node_modules/(fastify|@fastify/[^/]+|fastify-type-provider-zod)/' },
    },
    {
      name: 'process-at-the-edge',
      comment:
        'Configuration is parsed once, in app; importing `process` would walk around the lint rule on process.env.',
      severity: 'error',
      from: { path: '^src/', pathNot: [TEST, '^src/main\\.ts$', APP] },
      to: { path: '^(node:)?process$' },
    },
    {
      name: 'app-by-cli-and-main-only',
      comment: 'app is the composition root: only the commands of the program and the entry files build on it.',
      severity: 'error',
      from: { path: '^src/', pathNot: [TEST, '^src/main\\.ts$', APP, CLI, IN_MEMORY] },
      to: { path: ['^src/main\\.ts$', APP] },
    },
    {
      name: 'cli-by-main-only',
      comment: 'A command of the program is run by its entry and by nothing else.',
      severity: 'error',
      from: { path: '^src/', pathNot: [TEST, '^src/main\\.ts$', CLI] },
      to: { path: CLI },
    },
    {
      name: 'archive-by-cli-only',
      comment: 'What is written for keeping, and read again, is the business of the commands of the program.',
      severity: 'error',
      from: { path: '^src/', pathNot: [TEST, CLI, ARCHIVE] },
      to: { path: ARCHIVE },
    },
    {
      name: 'embedded-by-app-and-cli-only',
      comment: 'Everybody else has the address of a server, and does not know who started it.',
      severity: 'error',
      from: { path: '^src/', pathNot: [TEST, APP, CLI, EMBEDDED] },
      to: { path: EMBEDDED },
    },
    {
      name: 'in-memory-stands-apart',
      comment: 'The program does not start the Host of tests; what both need is below them.',
      severity: 'error',
      from: { path: '^src/', pathNot: [TEST, IN_MEMORY] },
      to: { path: IN_MEMORY },
    },
    {
      name: 'main-builds-roots-only',
      comment: 'The entry reads its environment, starts app or a command, and ends the process.',
      severity: 'error',
      from: { path: '^src/main\\.ts$' },
      to: { path: '^src/', pathNot: [APP, CLI, LIB] },
    },
    {
      name: 'src-not-to-tests',
      comment: 'What ships never needs what tests it.',
      severity: 'error',
      from: { path: '^src/', pathNot: TEST },
      to: { path: ['^(test|bench|scripts)/', TEST] },
    },
    {
      name: 'no-dev-dependencies-in-src',
      comment: 'What ships may only need what is installed with it; the pages of the console ship as a build.',
      severity: 'error',
      from: { path: '^src/', pathNot: [TEST, CONSOLE_APP] },
      to: { dependencyTypes: ['npm-dev'], dependencyTypesNot: ['type-only', 'npm-peer'] },
    },
    {
      name: 'no-undeclared-dependencies',
      comment: 'A package that is not in package.json works until somebody else stops needing it.',
      severity: 'error',
      from: {},
      to: { dependencyTypes: ['npm-no-pkg', 'npm-unknown'] },
    },
    {
      name: 'no-circular',
      comment: 'A cycle is one module in two files.',
      severity: 'error',
      from: {},
      to: { circular: true },
    },
    {
      name: 'not-to-unresolvable',
      comment: 'An import the checker cannot follow is an import no law was applied to.',
      severity: 'error',
      from: {},
      to: { couldNotResolve: true },
    },
    {
      name: 'no-orphans',
      comment: 'A module nobody imports is dead, or its test is missing.',
      severity: 'error',
      from: {
        orphan: true,
        pathNot: [
          '^src/main\\.ts$',
          '^src/client/client\\.ts$',
          '^src/react/use-session\\.ts$',
          '^src/in-memory/index\\.ts$',
          '^src/console/app/main\\.tsx$',
          '\\.css$',
          '^test/',
          '^bench/main\\.ts$',
          TEST,
          '\\.d\\.ts$',
        ],
      },
      to: {},
    },
  ],
  options: {
    parser: 'swc',
    doNotFollow: { path: 'node_modules' },
    tsPreCompilationDeps: true,
    skipAnalysisNotInRules: true,
    enhancedResolveOptions: {
      extensions: ['.ts', '.tsx', '.mts', '.js', '.mjs', '.cjs', '.json'],
      exportsFields: ['exports'],
      conditionNames: ['import', 'node', 'types', 'default'],
    },
  },
};
