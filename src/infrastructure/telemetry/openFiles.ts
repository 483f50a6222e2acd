interface Report {
  excludeNetwork: boolean
  readonly getReport: () => { readonly userLimits?: { readonly open_files?: { readonly soft: unknown } } }
}

/** Limit of the open files and sockets of this process; infinite if the system reports none. */
const openFilesLimit = () => {
  const report = process.report as unknown as Report
  const { excludeNetwork } = report
  // The network part would look up the names of all peers.
  report.excludeNetwork = true
  const soft = Number(report.getReport().userLimits?.open_files?.soft)
  report.excludeNetwork = excludeNetwork
  return soft > 0 ? soft : Number.POSITIVE_INFINITY
}

/**
 * Shares of the limit of open files (`ulimit -n`). Without them, clients could use all of it, and deliveries would fail as
 * if their receivers were down.
 */
export const openFiles = () => {
  const limit = openFilesLimit()
  return {
    /** Connections of clients; further connections are closed at once. */
    clients: Math.floor((limit * 3) / 4),
    /** Delivery attempts in flight. */
    attempts: Math.floor(limit / 8),
  }
}
