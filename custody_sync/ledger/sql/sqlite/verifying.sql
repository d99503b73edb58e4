-- What a check of a log keeps beside its replay: which erasable sections are gone, and which forgets took some.

CREATE TABLE sections (
    fact_id TEXT NOT NULL,
    seq     INTEGER NOT NULL,
    name    TEXT NOT NULL,
    there   INTEGER NOT NULL,
    upto    INTEGER NOT NULL -- the head that was committed before the event was read
);

CREATE TABLE forgets (
    fact_id  TEXT NOT NULL,
    seq      INTEGER NOT NULL,
    identity INTEGER NOT NULL,
    PRIMARY KEY (fact_id, seq)
) WITHOUT ROWID;
