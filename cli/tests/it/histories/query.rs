//! Queries by chance, as text of the pipeline language, with the columns that they give.
//!
//! What a query gives must not depend on the order of rows: functions that look at an order are
//! given one over all columns, and sums of doubles are exact for the values that `tables` makes.

mod related;

use super::chance::Chance;
use super::tables::{Col, Type, literal};

/// A relation: a table, or a SELECT.
#[derive(Debug, Clone)]
pub struct Rel {
    pub sql: String,
    pub cols: Vec<Col>,
    /// A bare name.
    is_table: bool,
}

impl Rel {
    pub fn table(name: &str, cols: &[Col]) -> Self {
        Self {
            sql: name.into(),
            cols: cols.to_vec(),
            is_table: true,
        }
    }

    /// As a factor of FROM.
    fn from(&self, alias: &str) -> String {
        match self.is_table {
            true => format!("{} AS {alias}", self.sql),
            false => format!("({}) AS {alias}", self.sql),
        }
    }

    /// As a whole query.
    pub fn query(&self) -> String {
        match self.is_table {
            true => format!("SELECT * FROM {}", self.sql),
            false => self.sql.clone(),
        }
    }
}

fn of_kind(cols: &[Col], is: impl Fn(Type) -> bool) -> Vec<Col> {
    cols.iter().filter(|c| is(c.kind)).cloned().collect()
}

fn keyable(cols: &[Col]) -> Vec<Col> {
    of_kind(cols, |k| k != Type::Approximate)
}

/// Makes queries over tables that are given.
pub struct Maker<'a> {
    pub chance: &'a mut Chance,
    pub tables: &'a [Rel],
    names: usize,
    joins: usize,
}

impl<'a> Maker<'a> {
    pub fn new(chance: &'a mut Chance, tables: &'a [Rel]) -> Self {
        Self {
            chance,
            tables,
            names: 0,
            joins: 0,
        }
    }

    fn alias(&mut self) -> String {
        self.names += 1;
        format!("q{}", self.names)
    }

    fn name(&mut self) -> String {
        self.names += 1;
        format!("c{}", self.names)
    }

    /// A query; small ones are more frequent.
    pub fn make(&mut self) -> Rel {
        let depth = self.chance.pick(&[1, 1, 1, 2, 2, 3]);
        let mut rel = self.rel(depth);
        if rel.is_table {
            rel = self.project(rel);
        }
        rel
    }

    fn scan(&mut self) -> Rel {
        self.chance.pick(self.tables)
    }

    fn rel(&mut self, depth: usize) -> Rel {
        if depth == 0 {
            return match self.chance.below(4) {
                0 => {
                    let rel = self.scan();
                    self.filter(rel)
                }
                1 => {
                    let rel = self.scan();
                    self.project(rel)
                }
                _ => self.scan(),
            };
        }
        let below = depth - 1;
        match self.chance.below(50) {
            0..=2 => {
                let rel = self.rel(below);
                self.project(rel)
            }
            3 | 4 => {
                let rel = self.rel(below);
                self.filter(rel)
            }
            5..=12 if self.joins < 2 => {
                self.joins += 1;
                let (a, b) = (self.rel(below), self.rel(below.min(1)));
                self.join(a, b)
            }
            13..=15 => {
                let (a, b) = (self.rel(below), self.rel(0));
                self.semi(a, b)
            }
            16..=18 => {
                let (a, b) = (self.rel(below), self.rel(below));
                self.union(a, b)
            }
            19..=27 => {
                let rel = self.rel(below);
                self.group(rel)
            }
            28 | 29 => {
                let rel = self.rel(below);
                self.distinct(rel)
            }
            30..=33 => {
                let rel = self.rel(below);
                self.window(rel)
            }
            34 if self.joins < 2 => {
                self.joins += 1;
                let rel = self.rel(below);
                self.twice(rel)
            }
            35 => {
                let (a, b) = (self.rel(below), self.rel(0));
                self.correlated(a, b)
            }
            36 => {
                let rel = self.rel(below);
                self.top(rel)
            }
            37 => {
                let rel = self.rel(below);
                self.total(rel)
            }
            38 => {
                let (a, b) = (self.rel(below), self.rel(0));
                self.scalar(a, b)
            }
            39..=44 if self.joins < 2 => {
                self.joins += 1;
                let (a, b) = (self.rel(below), self.rel(0));
                self.around(a, b)
            }
            45 | 46 => {
                let (a, b) = (self.rel(below), self.rel(0));
                self.sets(a, b)
            }
            47 if self.joins < 2 => {
                self.joins += 1;
                let (a, b) = (self.rel(below), self.rel(0));
                self.using(a, b)
            }
            _ => {
                let rel = self.rel(below);
                self.filter(rel)
            }
        }
    }

    // -- expressions

    /// A scalar expression over columns of `alias`.
    fn expr(&mut self, alias: &str, cols: &[Col]) -> (String, Type) {
        let col = self.chance.pick(cols);
        let c = format!("{alias}.{}", col.name);
        let kind = col.kind;
        if self.chance.of_hundred(55) {
            return (c, kind);
        }
        let choice = self.chance.below(4);
        match (kind, choice) {
            (Type::Int | Type::Long, 0) => (format!("{c} + 1"), kind),
            (Type::Int | Type::Long, 1) => (format!("{c} % 3"), kind),
            (Type::Int | Type::Long, 2) => (format!("CASE WHEN {c} > 2 THEN {c} ELSE 0 END"), kind),
            (Type::Int | Type::Long, _) => (format!("CAST({c} AS STRING)"), Type::Text),
            (Type::Decimal, _) => (format!("coalesce({c}, CAST(0 AS DECIMAL(12,2)))"), kind),
            (Type::Double, 0) => (format!("{c} * 2"), kind),
            (Type::Double, 1) => (format!("abs({c})"), kind),
            (Type::Double, _) => (format!("coalesce({c}, CAST(0 AS DOUBLE))"), kind),
            (Type::Text, 0) => (format!("upper({c})"), kind),
            (Type::Text, 1) => (format!("concat({c}, '!')"), kind),
            (Type::Text, 2) => (format!("length({c})"), Type::Int),
            (Type::Text, _) => (format!("coalesce({c}, 'none')"), kind),
            (Type::Date, 0) => (format!("date_add({c}, 1)"), kind),
            (Type::Date, 1) => (format!("coalesce({c}, DATE '2026-03-05')"), kind),
            (Type::Date, 2) => (format!("day({c})"), Type::Int),
            (Type::Date, _) => (c, kind),
            (Type::Time, 0) => (format!("CAST({c} AS DATE)"), Type::Date),
            (Type::Time, 1) => (format!("date_trunc('DAY', {c})"), kind),
            (Type::Time, _) => (format!("hour({c})"), Type::Int),
            (Type::Bool, 0) => (format!("NOT {c}"), kind),
            (Type::Bool, _) => (format!("coalesce({c}, false)"), kind),
            (Type::Approximate, _) => (c, kind),
        }
    }

    fn condition(&mut self, alias: &str, cols: &[Col]) -> String {
        let usable = keyable(cols);
        if usable.is_empty() {
            return "true".into();
        }
        let col = self.chance.pick(&usable);
        let c = format!("{alias}.{}", col.name);
        let kind = col.kind;
        let one = match self.chance.below(8) {
            0 => format!("{c} IS NOT NULL"),
            1 => format!("{c} IS NULL"),
            2 => {
                let (a, b) = (literal(self.chance, kind), literal(self.chance, kind));
                format!("{c} IN ({a}, {b})")
            }
            _ if kind == Type::Bool => c,
            3 if kind == Type::Text => format!("{c} LIKE 'a%'"),
            3 => format!("{c} <> {}", literal(self.chance, kind)),
            4 | 5 => format!("{c} >= {}", literal(self.chance, kind)),
            6 => format!("{c} < {}", literal(self.chance, kind)),
            _ => format!("{c} = {}", literal(self.chance, kind)),
        };
        if self.chance.of_hundred(20) {
            let other = self.condition(alias, cols);
            let word = self.chance.pick(&["AND", "OR"]);
            return format!("({one} {word} {other})");
        }
        one
    }

    /// Some columns as they are, dates above all.
    fn chosen(&mut self, cols: &[Col], most: usize) -> Vec<Col> {
        let mut chosen = self.chance.some(cols, most);
        let dates = of_kind(cols, |k| k == Type::Date);
        if !dates.is_empty()
            && !chosen.iter().any(|c| c.kind == Type::Date)
            && self.chance.of_hundred(80)
        {
            chosen.push(self.chance.pick(&dates));
        }
        chosen
    }

    // -- operators

    fn project(&mut self, rel: Rel) -> Rel {
        let q = self.alias();
        let (mut items, mut cols) = (Vec::new(), Vec::new());
        for col in self.chosen(&rel.cols, 4) {
            items.push(format!("{q}.{}", col.name));
            cols.push(col);
        }
        for _ in 0..self.chance.below(3) {
            let (expr, kind) = self.expr(&q, &rel.cols);
            let name = self.name();
            items.push(format!("{expr} AS {name}"));
            cols.push(Col::made(name, kind));
        }
        let filter = match self.chance.of_hundred(40) {
            true => format!(" WHERE {}", self.condition(&q, &rel.cols)),
            false => String::new(),
        };
        select(
            format!("SELECT {} FROM {}{filter}", items.join(", "), rel.from(&q)),
            cols,
        )
    }

    fn filter(&mut self, rel: Rel) -> Rel {
        let q = self.alias();
        let condition = self.condition(&q, &rel.cols);
        select(
            format!("SELECT * FROM {} WHERE {condition}", rel.from(&q)),
            rel.cols,
        )
    }

    /// `a.x = b.y AND ...` over columns of like kinds.
    fn keys(&mut self, a: &Rel, b: &Rel, qa: &str, qb: &str) -> Option<String> {
        let mut pairs = Vec::new();
        for x in keyable(&a.cols) {
            for y in keyable(&b.cols) {
                let alike = x.kind == y.kind || x.kind.is_integer() && y.kind.is_integer();
                if alike && x.kind != Type::Bool {
                    pairs.push((x.clone(), y));
                }
            }
        }
        if pairs.is_empty() {
            return None;
        }
        // Columns of one name meet more often.
        let same: Vec<_> = pairs
            .iter()
            .filter(|(x, y)| x.name == y.name)
            .cloned()
            .collect();
        let mut conditions = Vec::new();
        for _ in 0..self.chance.pick(&[1, 1, 2]) {
            let (x, y) = match !same.is_empty() && self.chance.of_hundred(75) {
                true => self.chance.pick(&same),
                false => self.chance.pick(&pairs),
            };
            let equal = if self.chance.of_hundred(10) {
                "<=>"
            } else {
                "="
            };
            let condition = format!("{qa}.{} {equal} {qb}.{}", x.name, y.name);
            if !conditions.contains(&condition) {
                conditions.push(condition);
            }
        }
        Some(conditions.join(" AND "))
    }

    fn join(&mut self, a: Rel, b: Rel) -> Rel {
        let (qa, qb) = (self.alias(), self.alias());
        let Some(mut on) = self.keys(&a, &b, &qa, &qb) else {
            return self.project(a);
        };
        let kind = self.chance.pick(&[
            "JOIN",
            "JOIN",
            "JOIN",
            "LEFT JOIN",
            "LEFT JOIN",
            "RIGHT JOIN",
            "FULL JOIN",
        ]);
        if self.chance.of_hundred(15) {
            on.push_str(&format!(" AND {}", self.condition(&qb, &b.cols)));
        }
        let (mut items, mut cols) = (Vec::new(), Vec::new());
        for (q, rel) in [(&qa, &a), (&qb, &b)] {
            for col in self.chosen(&rel.cols, 3) {
                let taken = cols.iter().any(|c: &Col| c.name == col.name);
                let name = if taken { self.name() } else { col.name.clone() };
                items.push(format!("{q}.{} AS {name}", col.name));
                let kept = match kind {
                    "JOIN" => true,
                    "LEFT JOIN" => *q == qa,
                    "RIGHT JOIN" => *q == qb,
                    _ => false,
                };
                cols.push(Col {
                    name,
                    traced: col.traced && kept,
                    ..col
                });
            }
        }
        if kind == "FULL JOIN" || self.chance.of_hundred(10) {
            let (x, y) = (
                of_kind(&a.cols, |k| k == Type::Date),
                of_kind(&b.cols, |k| k == Type::Date),
            );
            if !x.is_empty() && !y.is_empty() {
                let name = self.name();
                items.push(format!(
                    "coalesce({qa}.{}, {qb}.{}) AS {name}",
                    x[0].name, y[0].name
                ));
                cols.push(Col::made(name, Type::Date));
            }
        }
        let filter = match self.chance.of_hundred(25) {
            true => format!(" WHERE {}", self.condition(&qa, &a.cols)),
            false => String::new(),
        };
        select(
            format!(
                "SELECT {} FROM {} {kind} {} ON {on}{filter}",
                items.join(", "),
                a.from(&qa),
                b.from(&qb)
            ),
            cols,
        )
    }

    fn semi(&mut self, a: Rel, b: Rel) -> Rel {
        let (qa, qb) = (self.alias(), self.alias());
        let Some(on) = self.keys(&a, &b, &qa, &qb) else {
            return self.filter(a);
        };
        let (from_a, from_b) = (a.from(&qa), b.from(&qb));
        let sql = match self.chance.below(6) {
            0 => format!("SELECT {qa}.* FROM {from_a} LEFT SEMI JOIN {from_b} ON {on}"),
            1 => format!("SELECT {qa}.* FROM {from_a} LEFT ANTI JOIN {from_b} ON {on}"),
            2 => format!("SELECT * FROM {from_a} WHERE EXISTS (SELECT 1 FROM {from_b} WHERE {on})"),
            3 => {
                format!(
                    "SELECT * FROM {from_a} WHERE NOT EXISTS (SELECT 1 FROM {from_b} WHERE {on})"
                )
            }
            way => {
                let not = if way == 4 { "" } else { "NOT " };
                let pairs: Vec<(Col, Col)> = keyable(&a.cols)
                    .into_iter()
                    .flat_map(|x| {
                        let kind = x.kind;
                        of_kind(&b.cols, |k| k == kind)
                            .into_iter()
                            .map(move |y| (x.clone(), y))
                    })
                    .collect();
                if pairs.is_empty() {
                    return self.filter(a);
                }
                let (x, y) = self.chance.pick(&pairs);
                format!(
                    "SELECT * FROM {from_a} WHERE {qa}.{} {not}IN (SELECT {qb}.{} FROM {from_b})",
                    x.name, y.name
                )
            }
        };
        select(sql, a.cols)
    }

    fn union(&mut self, a: Rel, b: Rel) -> Rel {
        let (qa, qb) = (self.alias(), self.alias());
        let chosen = self.chosen(&a.cols, 4);
        let (mut left, mut right) = (Vec::new(), Vec::new());
        for col in &chosen {
            left.push(format!("{qa}.{}", col.name));
            let alike = of_kind(&b.cols, |k| k == col.kind);
            let same = alike.iter().find(|c| c.name == col.name).cloned();
            right.push(match same.or_else(|| alike.first().cloned()) {
                Some(other) => format!("{qb}.{}", other.name),
                None => format!("CAST(NULL AS {})", col.kind.sql()),
            });
        }
        let word = self
            .chance
            .pick(&["UNION ALL", "UNION ALL", "UNION ALL", "UNION"]);
        let word = match chosen.iter().any(|c| c.kind == Type::Approximate) {
            true => "UNION ALL",
            false => word,
        };
        select(
            format!(
                "SELECT {} FROM {} {word} SELECT {} FROM {}",
                left.join(", "),
                a.from(&qa),
                right.join(", "),
                b.from(&qb)
            ),
            chosen,
        )
    }

    fn aggregate(&mut self, q: &str, cols: &[Col]) -> (String, Type) {
        let usable = keyable(cols);
        let numbers = of_kind(cols, Type::is_number);
        let ordered = of_kind(cols, |k| !matches!(k, Type::Approximate | Type::Bool));
        let choice = self.chance.below(14);
        if choice < 3 || usable.is_empty() {
            return ("count(*)".into(), Type::Long);
        }
        let any = format!("{q}.{}", self.chance.pick(&usable).name);
        if choice == 3 {
            return (format!("count({any})"), Type::Long);
        }
        if choice == 4 {
            return (format!("count(DISTINCT {any})"), Type::Long);
        }
        if choice < 8 && !ordered.is_empty() {
            let col = self.chance.pick(&ordered);
            let function = self.chance.pick(&["min", "max"]);
            return (format!("{function}({q}.{})", col.name), col.kind);
        }
        if numbers.is_empty() {
            return (format!("count({any})"), Type::Long);
        }
        let col = self.chance.pick(&numbers);
        let n = format!("{q}.{}", col.name);
        let summed = match col.kind {
            Type::Int | Type::Long => Type::Long,
            kind => kind,
        };
        match choice {
            8..=10 => (format!("sum({n})"), summed),
            11 => {
                // The scale of an average of decimals is more than two digits.
                let kind = match col.kind {
                    Type::Decimal => Type::Approximate,
                    _ => Type::Double,
                };
                (format!("avg({n})"), kind)
            }
            12 if self.chance.of_hundred(50) => {
                let condition = self.condition(q, cols);
                (format!("sum({n}) FILTER (WHERE {condition})"), summed)
            }
            12 => (format!("stddev_pop({n})"), Type::Approximate),
            _ => (format!("sum(DISTINCT {n})"), summed),
        }
    }

    fn group(&mut self, rel: Rel) -> Rel {
        let q = self.alias();
        let usable = keyable(&rel.cols);
        if usable.is_empty() {
            return rel;
        }
        let keys = self.chosen(&usable, 2);
        let (mut items, mut cols, mut groups) = (Vec::new(), Vec::new(), Vec::new());
        for key in keys {
            if self.chance.of_hundred(12) {
                let (expr, kind) = self.expr(&q, std::slice::from_ref(&key));
                let name = self.name();
                items.push(format!("{expr} AS {name}"));
                groups.push(expr);
                cols.push(Col::made(name, kind));
            } else {
                items.push(format!("{q}.{}", key.name));
                groups.push(format!("{q}.{}", key.name));
                cols.push(key);
            }
        }
        for _ in 0..self.chance.between(1, 3) {
            let (expr, kind) = self.aggregate(&q, &rel.cols);
            let name = self.name();
            items.push(format!("{expr} AS {name}"));
            cols.push(Col::made(name, kind));
        }
        let having = match self.chance.below(8) {
            0 => " HAVING count(*) > 1".to_string(),
            1 => format!(" HAVING max({q}.{}) IS NOT NULL", usable[0].name),
            _ => String::new(),
        };
        let having = match usable[0].kind {
            Type::Bool => String::new(),
            _ => having,
        };
        select(
            format!(
                "SELECT {} FROM {} GROUP BY {}{having}",
                items.join(", "),
                rel.from(&q),
                groups.join(", ")
            ),
            cols,
        )
    }

    /// One row for all.
    fn total(&mut self, rel: Rel) -> Rel {
        let q = self.alias();
        let (mut items, mut cols) = (Vec::new(), Vec::new());
        for _ in 0..self.chance.between(1, 3) {
            let (expr, kind) = self.aggregate(&q, &rel.cols);
            let name = self.name();
            items.push(format!("{expr} AS {name}"));
            cols.push(Col::made(name, kind));
        }
        select(
            format!("SELECT {} FROM {}", items.join(", "), rel.from(&q)),
            cols,
        )
    }

    /// Compared with one value of another relation.
    fn scalar(&mut self, a: Rel, b: Rel) -> Rel {
        let (qa, qb) = (self.alias(), self.alias());
        let pairs: Vec<(Col, Col)> = keyable(&a.cols)
            .into_iter()
            .flat_map(|x| {
                let kind = x.kind;
                of_kind(&b.cols, |k| k == kind && k != Type::Bool)
                    .into_iter()
                    .map(move |y| (x.clone(), y))
            })
            .collect();
        if pairs.is_empty() {
            return self.filter(a);
        }
        let (x, y) = self.chance.pick(&pairs);
        let function = self.chance.pick(&["max", "min"]);
        let operator = self.chance.pick(&["<", ">=", "="]);
        select(
            format!(
                "SELECT * FROM {} WHERE {qa}.{} {operator} (SELECT {function}({qb}.{}) FROM {})",
                a.from(&qa),
                x.name,
                y.name,
                b.from(&qb)
            ),
            a.cols,
        )
    }

    fn distinct(&mut self, rel: Rel) -> Rel {
        let q = self.alias();
        let usable = keyable(&rel.cols);
        if usable.is_empty() {
            return rel;
        }
        let cols = self.chosen(&usable, 3);
        let items: Vec<String> = cols.iter().map(|c| format!("{q}.{}", c.name)).collect();
        select(
            format!("SELECT DISTINCT {} FROM {}", items.join(", "), rel.from(&q)),
            cols,
        )
    }

    fn window(&mut self, rel: Rel) -> Rel {
        let q = self.alias();
        let usable = keyable(&rel.cols);
        if usable.is_empty() {
            return rel;
        }
        let keys = self.chosen(&usable, 1);
        let by: Vec<String> = keys.iter().map(|c| format!("{q}.{}", c.name)).collect();
        let all: Vec<String> = usable.iter().map(|c| format!("{q}.{}", c.name)).collect();
        let (by, all) = (by.join(", "), all.join(", "));
        let numbers = of_kind(&rel.cols, Type::is_number);
        let col = self.chance.pick(&usable);
        let c = format!("{q}.{}", col.name);
        let ordered = format!("PARTITION BY {by} ORDER BY {all}");
        let (expr, kind) = match self.chance.below(7) {
            0 => (format!("row_number() OVER ({ordered})"), Type::Int),
            1 => (
                format!("rank() OVER (PARTITION BY {by} ORDER BY {c})"),
                Type::Int,
            ),
            2 => (format!("count(*) OVER (PARTITION BY {by})"), Type::Long),
            3 => (format!("lag({c}) OVER ({ordered})"), col.kind),
            4 if col.kind != Type::Bool => (format!("max({c}) OVER (PARTITION BY {by})"), col.kind),
            5 if !numbers.is_empty() => {
                let n = self.chance.pick(&numbers);
                let kind = if n.kind.is_integer() {
                    Type::Long
                } else {
                    n.kind
                };
                (
                    format!("sum({q}.{}) OVER (PARTITION BY {by} ORDER BY {c})", n.name),
                    kind,
                )
            }
            _ => (format!("count({c}) OVER (PARTITION BY {by})"), Type::Long),
        };
        let name = self.name();
        let mut cols: Vec<Col> = self
            .chosen(&rel.cols, 3)
            .into_iter()
            .map(|c| if keys.contains(&c) { c } else { c.untraced() })
            .collect();
        for key in keys {
            if !cols.contains(&key) {
                cols.push(key);
            }
        }
        let mut items: Vec<String> = cols.iter().map(|c| format!("{q}.{}", c.name)).collect();
        items.push(format!("{expr} AS {name}"));
        cols.push(Col::made(name, kind));
        select(
            format!("SELECT {} FROM {}", items.join(", "), rel.from(&q)),
            cols,
        )
    }

    /// A common table expression that is joined with itself.
    fn twice(&mut self, rel: Rel) -> Rel {
        let cte = self.alias();
        let table = Rel::table(&cte, &rel.cols);
        let joined = self.join(table.clone(), table);
        Rel {
            sql: format!("WITH {cte} AS ({}) {}", rel.query(), joined.sql),
            ..joined
        }
    }

    fn correlated(&mut self, a: Rel, b: Rel) -> Rel {
        let (qa, qb) = (self.alias(), self.alias());
        let (x, y) = (
            of_kind(&a.cols, Type::is_integer),
            of_kind(&b.cols, Type::is_integer),
        );
        let same: Vec<(Col, Col)> = keyable(&a.cols)
            .into_iter()
            .flat_map(|x| {
                let kind = x.kind;
                of_kind(&b.cols, |k| k == kind && k != Type::Bool)
                    .into_iter()
                    .map(move |y| (x.clone(), y))
            })
            .collect();
        if x.is_empty() || y.is_empty() || same.is_empty() {
            return self.filter(a);
        }
        let (n, m) = (self.chance.pick(&x), self.chance.pick(&y));
        let (k, l) = self.chance.pick(&same);
        let function = self.chance.pick(&["avg", "max", "min", "sum"]);
        let operator = self.chance.pick(&["<", ">=", "="]);
        select(
            format!(
                "SELECT * FROM {} WHERE {qa}.{} {operator} (SELECT {function}({qb}.{}) FROM {} WHERE {qb}.{} = {qa}.{})",
                a.from(&qa),
                n.name,
                m.name,
                b.from(&qb),
                l.name,
                k.name
            ),
            a.cols,
        )
    }

    fn top(&mut self, rel: Rel) -> Rel {
        let q = self.alias();
        let usable = keyable(&rel.cols);
        if usable.is_empty() || usable.len() != rel.cols.len() {
            return rel;
        }
        let all: Vec<String> = usable.iter().map(|c| format!("{q}.{}", c.name)).collect();
        select(
            format!(
                "SELECT * FROM {} ORDER BY {} LIMIT {}",
                rel.from(&q),
                all.join(", "),
                self.chance.between(1, 9)
            ),
            rel.cols.into_iter().map(Col::untraced).collect(),
        )
    }
}

fn select(sql: String, cols: Vec<Col>) -> Rel {
    Rel {
        sql,
        cols,
        is_table: false,
    }
}
