-- What a redrive has to know.

-- Whether there is still something to send, as of now. Volatile, so that it looks anew when it is called: a statement's
-- own snapshot may be older than the lock that it has waited for, and what held that lock may have erased the content.
CREATE FUNCTION notifyqueue.has_content(notification uuid) RETURNS boolean LANGUAGE sql VOLATILE STRICT AS $$
  SELECT EXISTS (SELECT FROM notifyqueue.notification_contents AS c WHERE c.notification_id = notification)
$$;
