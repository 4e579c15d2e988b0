-- get_message: a text message or a push.
SELECT id, server, address, taken_as, replaces, content, deliveries, received_at FROM sandbox.messages WHERE id = $1
