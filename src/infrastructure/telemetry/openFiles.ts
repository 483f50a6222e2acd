interface Report {
  excludeNetwork: boolean
  readonly getReport: () => { readonly userLimits?: { readonly open_files?: { readonly soft: unknown } } }
}

/** How many files and sockets this process may have open; infinite where the system does not say. */
const limit = () => {
  const report = process.report as unknown as Report
  const { excludeNetwork } = report
  // It would look the names of all peers up.
  report.excludeNetwork = true
  const soft = Number(report.getReport().userLimits?.open_files?.soft)
  report.excludeNetwork = excludeNetwork
  return soft > 0 ? soft : Number.POSITIVE_INFINITY
}

/**
 * The shares of what the process may have open (`ulimit -n`): clients that take all of it would leave none for the
 * database and the deliveries, whose receivers would be blamed.
 */
export const openFiles = () => {
  const all = limit()
  return {
    /** Connections of clients; one more is closed at once. */
    clients: Math.floor((all * 3) / 4),
    /** Attempts of deliveries in flight. */
    attempts: Math.floor(all / 8),
  }
}
