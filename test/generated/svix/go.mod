module gatehouse.test/svix

go 1.25.0

require github.com/svix/svix-webhooks v1.44.0

require gopkg.in/validator.v2 v2.0.1 // indirect
