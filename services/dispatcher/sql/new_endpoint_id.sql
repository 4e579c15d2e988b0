-- new_endpoint_id: the id of an endpoint to be, which its secret is sealed to.
SELECT notifyqueue.new_id() AS id
