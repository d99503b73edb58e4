-- custody-sync ledger, schema version 1 (Postgres). The schema's name stands for whatever the URL names.
-- events and sealed are the log; everything else is derived from them in the same transaction,
-- except settings and notes (leases, reservations, spools), which carry no facts.
-- What is ordered is COLLATE "C", so that its order is that of the bytes on every server. Where an
-- erasure reaches, no statistics are gathered, since Postgres would keep samples of the values in
-- pg_statistic, and nothing is compressed, so that a search of the files finds what is there.

CREATE TABLE custody_sync.settings (
    name  text COLLATE "C" PRIMARY KEY,
    value bytea NOT NULL
);

-- One row that every group locks; room in its page keeps its versions off the end of the table.
CREATE TABLE custody_sync.head (
    one     integer PRIMARY KEY CHECK (one = 1),
    seq     bigint NOT NULL,
    tx_time text COLLATE "C",
    hash    text COLLATE "C" NOT NULL,
    count   bigint NOT NULL
) WITH (fillfactor = 10);

CREATE TABLE custody_sync.events (
    seq      bigint PRIMARY KEY,
    event_id text COLLATE "C" NOT NULL UNIQUE,
    fact_id  text COLLATE "C" NOT NULL,
    tx_time  text COLLATE "C" NOT NULL UNIQUE,
    hash     text COLLATE "C" NOT NULL,
    body     text COLLATE "C" NOT NULL
);
CREATE INDEX events_fact ON custody_sync.events (fact_id, seq);

-- What a forget erases: each section with its salt. A table of its own keeps the rewriting short.
CREATE TABLE custody_sync.sealed (
    seq           bigint PRIMARY KEY,
    content       text COLLATE "C",
    content_salt  bytea,
    identity      text COLLATE "C",
    identity_salt bytea,
    refs          text COLLATE "C",
    refs_salt     bytea
);
ALTER TABLE custody_sync.sealed
    ALTER content SET STATISTICS 0, ALTER content SET STORAGE EXTERNAL,
    ALTER content_salt SET STATISTICS 0,
    ALTER identity SET STATISTICS 0, ALTER identity SET STORAGE EXTERNAL,
    ALTER identity_salt SET STATISTICS 0,
    ALTER refs SET STATISTICS 0, ALTER refs SET STORAGE EXTERNAL,
    ALTER refs_salt SET STATISTICS 0;

CREATE TABLE custody_sync.claims (
    fact_id  text COLLATE "C" PRIMARY KEY,
    standing text COLLATE "C" NOT NULL,
    seq      bigint NOT NULL
);

CREATE TABLE custody_sync.facts (
    seq           bigint PRIMARY KEY,
    fact_id       text COLLATE "C" NOT NULL UNIQUE,
    root          text COLLATE "C" NOT NULL,
    supersedes    text COLLATE "C",
    space         text COLLATE "C" NOT NULL,
    subject       text COLLATE "C" NOT NULL,
    predicate     text COLLATE "C" NOT NULL,
    provenance    text COLLATE "C" NOT NULL,
    actor         text COLLATE "C" NOT NULL,
    receipt_id    text COLLATE "C",
    tx_time       text COLLATE "C" NOT NULL,
    valid_from    text COLLATE "C" NOT NULL,
    valid_to      text COLLATE "C",
    effect_seq    bigint,
    retract_seq   bigint,
    forget_seq    bigint,
    live          boolean NOT NULL,
    identity_gone boolean NOT NULL
) WITH (fillfactor = 90);
ALTER TABLE custody_sync.facts
    ALTER space SET STATISTICS 0, ALTER space SET STORAGE EXTERNAL,
    ALTER subject SET STATISTICS 0, ALTER subject SET STORAGE EXTERNAL,
    ALTER predicate SET STATISTICS 0, ALTER predicate SET STORAGE EXTERNAL;
-- With seq, so that a page is read in its order and no further, without statistics to go by.
CREATE INDEX facts_space ON custody_sync.facts (space, seq);
CREATE INDEX facts_subject ON custody_sync.facts (subject, seq);
CREATE INDEX facts_chain ON custody_sync.facts (root, effect_seq);
-- What is believed now, without what no longer is: a page costs a page however much was superseded.
CREATE INDEX facts_live ON custody_sync.facts (seq) WHERE live;
CREATE INDEX facts_live_space ON custody_sync.facts (space, seq) WHERE live;
CREATE INDEX facts_claimed ON custody_sync.facts (seq)
    WHERE effect_seq IS NULL AND retract_seq IS NULL AND forget_seq IS NULL;
-- The corrections that do not begin yet, which leave what they cover believed until then.
CREATE INDEX facts_later ON custody_sync.facts (valid_from) WHERE supersedes IS NOT NULL;

-- The id is the place in the log: of the event that put it on record, and within that event.
CREATE TABLE custody_sync.placements (
    id          bigint PRIMARY KEY,
    store       text COLLATE "C" NOT NULL,
    external_id text COLLATE "C" NOT NULL,
    fact_id     text COLLATE "C" NOT NULL,
    scope       text COLLATE "C",
    stored_at   text COLLATE "C",
    until       text COLLATE "C",
    state       text COLLATE "C" NOT NULL,
    outcome     text COLLATE "C"
) WITH (fillfactor = 90);
ALTER TABLE custody_sync.placements
    ALTER external_id SET STATISTICS 0, ALTER external_id SET STORAGE EXTERNAL,
    ALTER scope SET STATISTICS 0, ALTER scope SET STORAGE EXTERNAL;
-- A store may give ids longer than an index takes. That an entry is on record once for a fact is seen to
-- by the rules, under the lock.
CREATE INDEX placements_entry ON custody_sync.placements (hashtextextended(external_id, 0));
CREATE INDEX placements_fact ON custody_sync.placements (fact_id, id);
CREATE INDEX placements_due ON custody_sync.placements (id) WHERE state = 'due';
CREATE INDEX placements_removed ON custody_sync.placements (id) WHERE state IN ('due', 'gone');
CREATE INDEX placements_until ON custody_sync.placements (store, until) WHERE until IS NOT NULL;

CREATE TABLE custody_sync.owed (
    fact_id text COLLATE "C" NOT NULL,
    store   text COLLATE "C" NOT NULL,
    PRIMARY KEY (fact_id, store)
);

CREATE TABLE custody_sync.holds (
    fact_id text COLLATE "C" NOT NULL,
    hold_id text COLLATE "C" NOT NULL,
    seq     bigint NOT NULL,
    PRIMARY KEY (fact_id, hold_id)
);

-- xid is of the transaction that set a note: an erasure is over once nobody sees a state before it.
CREATE TABLE custody_sync.notes (
    topic      text COLLATE "C" NOT NULL,
    key        text COLLATE "C" NOT NULL,
    value      text COLLATE "C" NOT NULL,
    holder     text COLLATE "C",
    since      text COLLATE "C" NOT NULL,
    expires_at text COLLATE "C",
    xid        xid8 NOT NULL DEFAULT pg_current_xact_id(),
    PRIMARY KEY (topic, key)
);
ALTER TABLE custody_sync.notes
    ALTER key SET STATISTICS 0, ALTER key SET STORAGE EXTERNAL,
    ALTER value SET STATISTICS 0, ALTER value SET STORAGE EXTERNAL;

INSERT INTO custody_sync.head (one, seq, tx_time, hash, count)
VALUES (1, 0, NULL, '0000000000000000000000000000000000000000000000000000000000000000', 0);
