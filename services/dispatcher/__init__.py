"""Reports how notifications ended, by signed webhooks."""
