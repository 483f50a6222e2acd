CREATE FUNCTION order_created() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM gatehouse_outbox.publish('order.created', jsonb_build_object('order', NEW.id));
  PERFORM gatehouse_outbox.create_job('send-email', jsonb_build_object('order', NEW.id), '{"priority": 5}');
  RETURN NULL;
END $$;

CREATE TRIGGER order_created AFTER INSERT ON orders FOR EACH ROW EXECUTE FUNCTION order_created();

INSERT INTO orders (customer) VALUES ('ann');
