import { getRouteApi, Link } from '@tanstack/react-router';
import type { ReactNode } from 'react';
import { Page } from '../../parts/page.tsx';
import { AuditView } from './audit-view.tsx';
import { ExecutorsView } from './executors-view.tsx';
import { IssuersView } from './issuers-view.tsx';
import { KeysView } from './keys-view.tsx';
import { ModelsView } from './models-view.tsx';
import { StatusView } from './status-view.tsx';
import { VaultsView } from './vaults-view.tsx';
import './tenant.css';

const route = getRouteApi('/tenant');

const VIEWS = [
  { view: undefined, name: 'State', Shown: StatusView },
  { view: 'keys', name: 'Keys', Shown: KeysView },
  { view: 'issuers', name: 'Issuers', Shown: IssuersView },
  { view: 'executors', name: 'Executors', Shown: ExecutorsView },
  { view: 'models', name: 'Models', Shown: ModelsView },
  { view: 'vaults', name: 'Vaults', Shown: VaultsView },
  { view: 'audit', name: 'Audit trail', Shown: AuditView },
] as const;

/** How a tenant is set up: who may call it, what it calls, and who changed that. */
export function TenantPage(): ReactNode {
  const { view } = route.useSearch();
  const { Shown } = VIEWS.find((one) => one.view === view) ?? VIEWS[0];
  return (
    <Page title="Tenant">
      <nav className="tabs" aria-label="Views of the tenant">
        {VIEWS.map((one) => (
          <Link
            key={one.name}
            className="tab"
            to="/tenant"
            search={{ view: one.view }}
            activeOptions={{ includeSearch: true, explicitUndefined: true }}
            aria-current={view === one.view ? 'page' : undefined}
          >
            {one.name}
          </Link>
        ))}
      </nav>
      <Shown />
    </Page>
  );
}
