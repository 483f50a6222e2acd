const weekdays = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]

/** A field that is one number of a range, as a number. */
const numberIn = (field: string, first: number, last: number) =>
  /^\d+$/.test(field) && Number(field) >= first && Number(field) <= last ? Number(field) : undefined

/** The step of a field such as `*` or a star with `/15`, when it is one below `length`. */
const stepIn = (field: string, length: number) =>
  field === "*" ? 1 : numberIn(/^\*\/(\d+)$/.exec(field)?.[1] ?? "", 1, length - 1)

/** What a cron expression means, for those that most people write; undefined for others. */
export const cronText = (cron: string) => {
  const fields = cron.trim().split(/\s+/)
  if (fields.length === 6 && fields[0] === "0") fields.shift()
  const [minutes, hours, days, month, weekday] = fields as [string, string, string, string, string]
  if (fields.length !== 5 || month !== "*") return undefined
  const [minute, hour, day] = [numberIn(minutes, 0, 59), numberIn(hours, 0, 23), numberIn(days, 1, 31)]
  const isDaily = days === "*" && weekday === "*"

  const minuteStep = stepIn(minutes, 60)
  if (isDaily && hours === "*" && minuteStep !== undefined) {
    if (minuteStep === 1) return "every minute"
    // The steps begin again with each hour.
    return 60 % minuteStep === 0
      ? `every ${minuteStep} minutes`
      : `every ${minuteStep} minutes, from minute 0 of each hour`
  }
  if (minute === undefined) return undefined

  const hourStep = stepIn(hours, 24)
  if (isDaily && hourStep === 1) return `every hour, at minute ${minute}`
  const padded = String(minute).padStart(2, "0")
  if (isDaily && hourStep !== undefined)
    return 24 % hourStep === 0
      ? `every ${hourStep} hours, at minute ${minute}`
      : `every ${hourStep} hours, from 0:${padded} of each day`
  if (hour === undefined) return undefined

  const time = `at ${hour}:${padded}`
  if (isDaily) return `every day ${time}`
  if (days === "*" && /^(1-5|mon-fri)$/i.test(weekday)) return `on weekdays ${time}`
  const named = numberIn(weekday, 0, 7)
  if (days === "*" && named !== undefined) return `every ${weekdays[named]} ${time}`
  return weekday === "*" && day !== undefined ? `on day ${day} of the month ${time}` : undefined
}
