-- get_raw_mail: a mail as it arrived.
SELECT raw FROM sandbox.mails WHERE id = $1
