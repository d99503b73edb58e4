-- custody-sync ledger, schema version 4 (SQLite).
-- events and sealed are the log; everything else is derived from them in the same transaction,
-- except settings and notes (leases, reservations, spools), which carry no facts.

CREATE TABLE settings (
    name  TEXT PRIMARY KEY,
    value BLOB NOT NULL
) WITHOUT ROWID;

CREATE TABLE head (
    one   INTEGER PRIMARY KEY CHECK (one = 1),
    seq   INTEGER NOT NULL,
    tx_time TEXT,
    hash  TEXT NOT NULL,
    count INTEGER NOT NULL
);

CREATE TABLE events (
    seq      INTEGER PRIMARY KEY,
    event_id TEXT NOT NULL UNIQUE,
    fact_id  TEXT NOT NULL,
    tx_time  TEXT NOT NULL,
    hash     TEXT NOT NULL,
    body     TEXT NOT NULL
);
CREATE INDEX events_fact ON events (fact_id);
CREATE UNIQUE INDEX events_time ON events (tx_time);

-- What a forget erases: each section with its salt. A table of its own keeps erasure local.
CREATE TABLE sealed (
    seq           INTEGER PRIMARY KEY,
    content       TEXT,
    content_salt  BLOB,
    identity      TEXT,
    identity_salt BLOB,
    refs          TEXT,
    refs_salt     BLOB
);

CREATE TABLE claims (
    fact_id  TEXT PRIMARY KEY,
    standing TEXT NOT NULL,
    seq      INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE facts (
    seq           INTEGER PRIMARY KEY,
    fact_id       TEXT NOT NULL UNIQUE,
    root          TEXT NOT NULL,
    supersedes    TEXT,
    space         TEXT NOT NULL,
    subject       TEXT NOT NULL,
    predicate     TEXT NOT NULL,
    provenance    TEXT NOT NULL,
    actor         TEXT NOT NULL,
    receipt_id    TEXT,
    tx_time       TEXT NOT NULL,
    valid_from    TEXT NOT NULL,
    valid_to      TEXT,
    effect_seq    INTEGER,
    retract_seq   INTEGER,
    forget_seq    INTEGER,
    live          INTEGER NOT NULL,
    identity_gone INTEGER NOT NULL,
    covered_from  TEXT
);
CREATE INDEX facts_space ON facts (space);
CREATE INDEX facts_subject ON facts (subject, predicate);
CREATE INDEX facts_chain ON facts (root, effect_seq);
-- What is believed now, without what no longer is: a page costs a page however much was superseded.
CREATE INDEX facts_live ON facts (seq) WHERE live;
CREATE INDEX facts_live_space ON facts (space) WHERE live;
CREATE INDEX facts_claimed ON facts (seq) WHERE effect_seq IS NULL AND retract_seq IS NULL AND forget_seq IS NULL;
-- The corrections that do not begin yet, which leave what they cover believed until then.
CREATE INDEX facts_later ON facts (valid_from) WHERE supersedes IS NOT NULL;

-- By 1,024 places of the log: the last event that changed whether a fact asserted there is believed.
-- Of a block that nothing has changed since, the past is as the present; so a page of the past costs a page.
CREATE TABLE blocks (
    block   INTEGER PRIMARY KEY,
    changed INTEGER NOT NULL
);

-- The id is the place in the log: of the event that put it on record, and within that event.
CREATE TABLE placements (
    id          INTEGER PRIMARY KEY,
    store       TEXT NOT NULL,
    external_id TEXT NOT NULL,
    fact_id     TEXT NOT NULL,
    scope       TEXT,
    stored_at   TEXT,
    until       TEXT,
    state       TEXT NOT NULL,
    outcome     TEXT,
    UNIQUE (store, external_id, fact_id)
);
CREATE INDEX placements_fact ON placements (fact_id);
CREATE INDEX placements_due ON placements (id) WHERE state = 'due';
CREATE INDEX placements_gone ON placements (id) WHERE state = 'gone';
CREATE INDEX placements_until ON placements (until) WHERE until IS NOT NULL;

-- Due once a fact begins; of one whose successor has begun nothing is due.
CREATE TABLE owed (
    fact_id TEXT NOT NULL,
    store   TEXT NOT NULL,
    due_at  TEXT NOT NULL,
    PRIMARY KEY (fact_id, store)
) WITHOUT ROWID;

CREATE TABLE holds (
    fact_id TEXT NOT NULL,
    hold_id TEXT NOT NULL,
    seq     INTEGER NOT NULL,
    PRIMARY KEY (fact_id, hold_id)
) WITHOUT ROWID;

CREATE TABLE notes (
    topic      TEXT NOT NULL,
    key        TEXT NOT NULL,
    value      TEXT NOT NULL,
    holder     TEXT,
    since      TEXT NOT NULL,
    expires_at TEXT,
    PRIMARY KEY (topic, key)
) WITHOUT ROWID;

INSERT INTO head (one, seq, tx_time, hash, count)
VALUES (1, 0, NULL, '0000000000000000000000000000000000000000000000000000000000000000', 0);
