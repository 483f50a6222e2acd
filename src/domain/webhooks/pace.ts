/** How far ahead a claim assigns the times of attempts of an endpoint with a limit per second. */
export const paceHorizonMillis = 500
/** How late an attempt may begin after its time. A time that is over by more is lost. */
export const maxPaceLateMillis = 30
/**
 * How much longer than 1 / limit the time between two attempts is. With it, any second has at most the limit, also when some
 * attempts arrive up to 80 ms later than others: `maxPaceLateMillis` before they begin, and the rest on their way.
 */
export const paceMargin = 1.08
