// Places an order with its event and its job in one transaction.
package main

import (
	"context"
	"log"
	"os"

	"github.com/jackc/pgx/v5"
)

func place(ctx context.Context, connection *pgx.Conn) error {
	return pgx.BeginFunc(ctx, connection, func(transaction pgx.Tx) error {
		var id int64
		insert := "INSERT INTO orders (customer) VALUES ($1) RETURNING id"
		if err := transaction.QueryRow(ctx, insert, "ann").Scan(&id); err != nil {
			return err
		}
		order := map[string]any{"order": id}
		if _, err := transaction.Exec(ctx, "SELECT gatehouse_outbox.publish('order.created', $1)", order); err != nil {
			return err
		}
		create := "SELECT gatehouse_outbox.create_job('send-email', $1, $2)"
		_, err := transaction.Exec(ctx, create, order, map[string]any{"priority": 5})
		return err
	})
}

func main() {
	ctx := context.Background()
	connection, err := pgx.Connect(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer connection.Close(ctx)
	if err := place(ctx, connection); err != nil {
		log.Fatal(err)
	}
}
