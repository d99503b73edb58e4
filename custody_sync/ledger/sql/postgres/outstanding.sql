-- What had to go and what is still to do; each is one statement, and so of one snapshot.

-- name: first
NOT EXISTS (SELECT FROM custody_sync.placements q WHERE q.fact_id = p.fact_id AND q.id < p.id
    AND q.state IN ('due', 'gone'))

-- name: in_space
AND EXISTS (SELECT FROM custody_sync.facts f WHERE f.fact_id = p.fact_id AND NOT f.identity_gone AND {space})

-- A removal is on record as an event of the fact, or as that of the link that covers it.
-- name: recorded
AND (EXISTS (
    SELECT FROM custody_sync.events e WHERE e.fact_id = p.fact_id AND e.tx_time >= %(since)s
    AND e.body::json ->> 'kind' IN ('retract', 'forget', 'repair', 'remove')
) OR EXISTS (
    SELECT FROM custody_sync.facts f
    JOIN custody_sync.facts d ON d.root = f.root AND d.effect_seq > f.effect_seq AND d.retract_seq IS NULL
    JOIN custody_sync.events e ON e.seq = d.effect_seq
    WHERE f.fact_id = p.fact_id AND e.tx_time >= %(since)s
))

-- name: removed_facts
SELECT h.seq, h.tx_time, h.hash, r.* FROM custody_sync.head h LEFT JOIN LATERAL (
    SELECT page.id, {placement} FROM (
        SELECT p.id, p.fact_id FROM custody_sync.placements p
        WHERE p.state IN ('due', 'gone') AND p.id > %(after)s AND {first} {about}
        ORDER BY p.id LIMIT %(limit)s
    ) page JOIN custody_sync.placements p ON p.fact_id = page.fact_id ORDER BY page.id, p.id
) r ON true WHERE h.one = 1 ORDER BY r.id

-- name: count_removed
SELECT p.store, count(*) FILTER (WHERE {first}) FROM custody_sync.placements p
WHERE p.state IN ('due', 'gone') {about} GROUP BY p.store ORDER BY p.store

-- When an entry became due: with the event that took its fact out of the stores, else with the first that
-- names the entry's fact after it was placed, else when it was put on record.
-- name: pending
SELECT store, outcome, count(*), min((SELECT e.tx_time FROM custody_sync.events e WHERE e.seq = since)) FROM (
    SELECT p.store, coalesce(p.outcome, 'untried') AS outcome, greatest(p.id / {width}, coalesce(
        (SELECT least(f.retract_seq, f.forget_seq, (SELECT min(d.effect_seq) FROM custody_sync.facts d
            WHERE d.root = f.root AND d.effect_seq > f.effect_seq AND d.retract_seq IS NULL))
         FROM custody_sync.facts f WHERE f.fact_id = p.fact_id),
        (SELECT min(e.seq) FROM custody_sync.events e WHERE e.fact_id = p.fact_id
            AND e.seq > p.id / {width} AND e.body::json ->> 'kind' IN ('remove', 'place'))
    )) AS since FROM custody_sync.placements p WHERE p.state = 'due'
) due GROUP BY store, outcome

-- name: ended
SELECT p.store, 'untried', count(*), min(p.until) FROM custody_sync.placements p
CROSS JOIN (SELECT greatest(%(now)s, tx_time) COLLATE "C" AS now FROM custody_sync.head WHERE one = 1) h
WHERE p.until IS NOT NULL AND p.until <= h.now AND p.state IN ('held', 'kept') GROUP BY p.store

-- name: owed
SELECT store, count(*) FILTER (WHERE due_at <= now AND (valid_to IS NULL OR valid_to > now)
        AND (covered_from IS NULL OR covered_from > now)),
    count(*) FILTER (WHERE waits), min(due_at) FILTER (WHERE waits)
FROM (
    SELECT o.store, o.due_at, f.valid_to, f.covered_from, h.now,
        o.due_at > h.now AND (f.covered_from IS NULL OR f.covered_from > o.due_at) AS waits
    FROM custody_sync.owed o JOIN custody_sync.facts f ON f.fact_id = o.fact_id
    CROSS JOIN (SELECT greatest(%(now)s, tx_time) COLLATE "C" AS now FROM custody_sync.head WHERE one = 1) h
) o GROUP BY store
