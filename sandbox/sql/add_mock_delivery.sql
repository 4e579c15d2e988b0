-- add_mock_delivery: how often this delivery key was accepted by now; only the first time counts as a delivery.
INSERT INTO sandbox.mock_deliveries (delivery_key, channel, address, content) VALUES ($1, $2, $3, $4)
ON CONFLICT (delivery_key) DO UPDATE SET deliveries = sandbox.mock_deliveries.deliveries + 1
RETURNING deliveries
