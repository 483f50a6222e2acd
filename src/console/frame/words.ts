/** The words of the portal that the page around its frame may replace, where they stand alone. */
export const words: ReadonlyArray<string> = `
1 day
1 hour
7 days
A new secret is made, and shown once. For 24 hours, the old one signs beside it.
Actions
Activate again
active
Active
Add a header
Add an endpoint
Add endpoint
All
An absolute https URL. Redirects are not followed.
Any time
API keys
API reference
As curl
Attempts
Attempts over time
Body
Body of the response
Cancel
Cancel the rest
canceled
Channels
Choose…
Clear filters
Close
Connecting
Copied
Copy
Copy the code
Copy the id
Copy the key
Copy the key now. It is not shown again.
Copy the secret
Copy the signing secret
Copy the URL
Cost
Counting…
Create a key
Create key
Created
Credits
Credits left
Data
Deactivate
Deactivate this endpoint?
Deactivated
Delete
Delete key
Delete the endpoint
Delete this endpoint?
delivered
Deliveries
Description
disabled
Done
Each endpoint is a URL that receives the events of this org.
Edit
Edit the endpoint
Empty: unlimited.
Endpoint
Endpoints
Ends at
Event
Event type
Event types
Events
expired
Extra headers
failed
Filters
Find
Forbidden
From
Headers
Help
I have copied it
I have copied the key to a safe place.
Id
In the last 7 days
It appears here as soon as it happens.
Key
Last 24 hours
Last 30 days
Last 7 days
Last attempt
Last hour
Last used
Latest deliveries
leaked
Limited
Live
Loading
Long enough to give the new one to everyone who uses it.
Look further
Make a key for your program. Keep it secret: anyone who has it may use it.
Menu
Name
Name, prefix or id
never
Never
Next attempt
No endpoint receives events yet
No overlap: the old key ends at once
Nobody received it
none
Not in 30 days
Not in 90 days
Nothing in this time
Nothing was delivered yet
Only a 2xx status counts as delivered.
Open the menu
Pages
Payload
pending
Permissions
Prefix
Print this page
Rate limit
Request
Resend
Resend what it missed
Resend what the endpoint missed
Response
Rotate
Rotate key
Rotate secret
Rotate the signing secret?
Save
Send a test
Send another test
Settings
Show as a table
Show more
Signature
Signing secret
Since
Skip to the page
skipped
So that people recognize the key.
State
Success rate
Test of the endpoint
The old key stays valid for
There is no key yet
There is no such page
There was no attempt yet.
This key is disabled. It is refused until somebody enables it.
This secret is shown once.
Time
To
Try again
Type
Types of events
Unlimited
URL
URL, description or id
Valid
Validations
Verify webhooks in
Webhook portal
Webhooks
What fails, and why
What was sent
`
  .trim()
  .split("\n")
