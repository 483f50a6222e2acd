/** How far ahead a claim assigns the times of attempts of an endpoint with a limit per second. */
export const paceHorizonMillis = 500
/** How late an attempt may begin after its time. A later one is released and gets another time. */
export const maxPaceLateMillis = 40
/**
 * How much longer than 1 / limit the time between two attempts is. With it, any second has at most the limit, also when
 * attempts begin up to `maxPaceLateMillis` late: 1.04 s have room for 1.04 / 1.06 of the limit, and one more.
 */
export const paceMargin = 1.06
