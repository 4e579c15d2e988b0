-- count_play: how often a script has been played by now, this time included.
INSERT INTO sandbox.plays (server, subject, played) VALUES ($1, $2, 1)
ON CONFLICT (server, subject) DO UPDATE SET played = sandbox.plays.played + 1
RETURNING played
