const weekdays = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
const isNumber = (text: string | undefined): text is string => /^\d+$/.test(text ?? "")

/** What a cron expression means, for those that most people write; undefined for others. */
export const cronText = (cron: string) => {
  const fields = cron.trim().split(/\s+/)
  if (fields.length === 6 && fields[0] === "0") fields.shift()
  const [minute, hour, day, month, weekday] = fields
  if (fields.length !== 5 || month !== "*") return undefined
  const every = /^\*\/(\d+)$/
  const isDaily = day === "*" && weekday === "*"
  if (isDaily && hour === "*") {
    const step = every.exec(minute!)?.[1] ?? (minute === "*" ? "1" : undefined)
    if (step !== undefined) return step === "1" ? "every minute" : `every ${step} minutes`
    return isNumber(minute) ? `every hour, at minute ${minute}` : undefined
  }
  const hours = every.exec(hour!)?.[1]
  if (isDaily && hours !== undefined && isNumber(minute)) return `every ${hours} hours, at minute ${minute}`
  if (!isNumber(minute) || !isNumber(hour)) return undefined
  const time = `at ${hour}:${minute.padStart(2, "0")}`
  if (isDaily) return `every day ${time}`
  if (day === "*" && weekday === "1-5") return `on weekdays ${time}`
  if (day === "*" && isNumber(weekday)) return `every ${weekdays[Number(weekday)]} ${time}`
  return weekday === "*" && isNumber(day) ? `on day ${day} of the month ${time}` : undefined
}
