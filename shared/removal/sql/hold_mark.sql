-- hold_mark: nobody else removes notifications until this transaction ends. Waits for whoever does.
SELECT m.sweep FROM notifyqueue.retention_marks AS m WHERE m.sweep = 'NOTIFICATIONS' FOR UPDATE
