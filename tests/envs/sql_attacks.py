"""Two hundred queries that try to write, read what is hidden, ask for the clock, never end or fill the memory.

Each with a part of the reason that is given. They are about the tables t(a, b, c) and u(d) of `test_sql.py`.
"""

from __future__ import annotations


NOT_ALLOWED = "it does what is not allowed"
NO_QUERY = "it does not begin with select, with or values"
SEVERAL = "it is more than one statement, or leaves a value open"
LONG = "it is too long, or makes a text that is"
STEPS = "it takes too many steps"
UNKNOWN = "it calls a function that there is not"
NAMES = "abcdefghijklmnop"
_ENDLESS = "with recursive r(x) as (select 1 union all select x + 1 from r)"

NO_QUERIES = (
    *(
        "delete from t",
        "drop table t",
        "insert into t(b) values ('z')",
        "update t set b = 'z'",
        "replace into t(b) values(1)",
    ),
    *(
        "create temp table t(b text, c integer)",
        "create view t2 as select 1",
        "create index i on t(b)",
        "alter table t add e",
    ),
    *("create trigger g after insert on t begin select 1; end", "create virtual table f using fts5(x)", "drop view v"),
    *(
        "attach '/etc/passwd' as p",
        "attach ':memory:' as main2",
        "detach main",
        "vacuum",
        "vacuum into '/tmp/x'",
        "reindex",
    ),
    *("begin", "commit", "rollback", "savepoint s", "release s", "end", "analyze", "analyze t"),
    *("explain select 1", "explain query plan select 1", "/* a */ explain select 1", "-- a\nexplain select 1"),
    *("/* a */ -- b\n\t explain query plan select 1", "EXPLAIN SELECT 1", "(select 1)", "table t", "selectx", "", "x"),
    *(f"pragma {name}" for name in ("query_only=0", "writable_schema=1", "table_info(t)", "database_list", "key='x'")),
    *(f"pragma {name}" for name in ("reverse_unordered_selects=0", "compile_options", "temp_store_directory='/tmp'")),
    *("\ufeffselect 1", "\u00a0select 1", ".tables", ".read /etc/passwd", "call f()", "show tables"),
)
FORBIDDEN = (
    *("random()", "randomblob(9)", "sqlite_version()", "sqlite_source_id()", "changes()", "total_changes()"),
    *("last_insert_rowid()", "load_extension('x')", "load_extension('x', 'y')", "sqlite_compileoption_get(1)"),
    *("sqlite_compileoption_used('x')", "sqlite_log(1, 'x')", "hex('x')", "quote('x')", "char(0)", "zeroblob(9)"),
    *("zeroblob(100000000)", "printf('%.*c', 100000000, 'x')", "format('%.*c', 100000000, 'x')", "soundex('x')"),
    *("likely(1)", "unlikely(1)", "likelihood(1, 0.5)", "json('[1]')", "json_array(1)", "json_extract('[1]', '$[0]')"),
    *("current_timestamp", "current_date", "current_time", "date()", "date('now')", "time('now')", "datetime('now')"),
    *("date('NOW')", "date(' now ')", "julianday('now')", "julianday()", "strftime('%s', 'now')", "strftime('%s')"),
    *("julianday('no' || 'w')", "date('now', '+1 day')", "date('2020-01-01', 'localtime')", "date('subsec')"),
    *("datetime('2020-01-01', 'utc')", "strftime('%Y', lower('NOW'))", "'a' match 'b'", "'a' regexp 'b'"),
    *(
        "fts3_tokenizer('x')",
        "matchinfo(1)",
        "snippet(1)",
        "rtreenode(2, x'')",
        "geopoly_area(1)",
        "sqlar_compress(1)",
    ),
)
READS = (
    *(
        "sqlite_master",
        "sqlite_schema",
        "sqlite_temp_master",
        "main.sqlite_master",
        "temp.sqlite_master",
        "sqlite_sequence",
    ),
    *(
        "sqlite_stat1",
        "pragma_table_info('t')",
        "pragma_database_list",
        "pragma_function_list",
        "pragma_compile_options",
    ),
    *("pragma_module_list", "json_each('[1]')", "json_tree('[1]')", "dbstat", "bytecode('select 1')", "sqlite_dbpage"),
    *("generate_series(1, 1000000000)", "fsdir('/')", "completion('s')", "main.dbstat", "tables_used('select 1')"),
)
LARGE = (
    (f"{_ENDLESS} select count(*) from r", STEPS),
    (f"{_ENDLESS} select max(x) from r", STEPS),
    (f"{_ENDLESS} select x from r", "it "),
    (f"{_ENDLESS} select x from r order by x desc", "it "),
    (f"{_ENDLESS} select group_concat(x) from r", "it "),
    (f"select exists({_ENDLESS} select 1 from r where x < 0)", STEPS),
    (f"select a from t where a in ({_ENDLESS} select x from r where x > 9)", STEPS),
    ("with recursive r(x) as (select 'a' union all select x || x from r) select x from r", LONG),
    ("with recursive r(x) as (select 'a' union all select replace(x, 'a', 'aaaaaaaa') from r) select x from r", LONG),
    ("with recursive r(x) as (select 1 union select (x * 7 + 3) % 9999991 from r) select count(*) from r", "it "),
    ("with recursive r(x, y) as (select 1, 1 union all select y, x from r) select x from r, t, t v", "it "),
    *(
        (f"select count(*) from {', '.join(f't {x}' for x in 'abcdefghijklmnop'[:n])}", STEPS)
        for n in (12, 13, 14, 16)
    ),
    (f"select 1 from {', '.join(f't {x}' for x in 'abcdefghijklmnop')} order by random()", NOT_ALLOWED),
    (f"select {'+'.join('1' * 2000)}", "it is too deep"),
    ("select " + "(" * 3000 + "1" + ")" * 3000, "it is too deep"),
    ("select " + "not " * 500 + "1", "it is too deep"),
    ("select " + "-" * 1 + " -" * 500 + "1", "it is too deep"),
    ("select " + "abs(" * 500 + "1" + ")" * 500, "it is too deep"),
    ("select 1 " + "union select 1 " * 100, "it is too large"),
    ("select 1 " + "union all select 1 " * 60, "it is too large"),
    (f"select {', '.join('1' * 300)}", "it is too large"),
    (f"select b from t where a in ({', '.join('9' * 5000)})", LONG),
    ("select '" + "a" * 20_000 + "'", LONG),
    ("x" * 10_001, LONG),
    ("select b from t where b like '" + "%a" * 500 + "'", "it has a pattern that is too long"),
    ("select b from t where b glob '" + "*a" * 500 + "'", "it has a pattern that is too long"),
    ("select replace(replace('" + "x" * 400 + "', 'x', '" + "y" * 400 + "'), 'y', 'zz')", LONG),
)
WRONG = (
    ("with x as (select 1) delete from t", NOT_ALLOWED),
    ("with x(b) as (select 1) insert into t(b) select b from x", NOT_ALLOWED),
    ("with x as (select 1) update t set b = 'z'", NOT_ALLOWED),
    ("with x as (select 1) replace into t(b) values (1)", NOT_ALLOWED),
    ("select b, c from t; delete from t", SEVERAL),
    ("select 1; select 2", SEVERAL),
    ("select 1;;select 2", SEVERAL),
    ("values (1); pragma query_only=0", SEVERAL),
    ("select 1; -- a\n drop table t", SEVERAL),
    ("select ?", SEVERAL),
    ("select :x", SEVERAL),
    ("select @x, $y, ?3", SEVERAL),
    ("select readfile('/etc/passwd')", UNKNOWN),
    ("select writefile('/tmp/x', 'y')", UNKNOWN),
    ("select edit('x')", UNKNOWN),
    ("select getenv('HOME')", UNKNOWN),
    ("select system('id')", UNKNOWN),
    ("select sleep(100)", UNKNOWN),
    ("select pg_sleep(100)", UNKNOWN),
    ("select b from", "it has no end"),
    ("select 'a", "no valid query"),
    ("select\u00a01", "no valid query"),
    ("select e from t", "it names a column that there is not"),
    ("select * from v", "it names a table that there is not"),
    ("select * from other.t", "it names a table that there is not"),
    ("select * from information_schema.tables", "it names a table that there is not"),
    ("select a from t, t", "it names a column that several tables have"),
    ("select sum(sum(a)) from t", "it uses an aggregate"),
    ("select abs(1, 2)", "too few or too many arguments"),
    ("select abs(-9223372036854775808)", "no valid query"),
    ("select * into outfile '/tmp/x' from t", "no valid query"),
    ("select b from t for update", "no valid query"),
    ("with x as (delete from t returning a) select a from x", "no valid query"),
)
ATTACKS = (
    *((query, NO_QUERY) for query in NO_QUERIES),
    *((f"select {call}", "it ") for call in FORBIDDEN),
    *((f"select * from {table}", "it ") for table in READS),
    *((f"select count(*) from {table}", "it ") for table in READS),
    *LARGE,
    *WRONG,
)
