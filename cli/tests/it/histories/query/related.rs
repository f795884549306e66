//! Subqueries that hang on the rows around them, operations on sets, and joins USING a column.

use super::super::tables::{Col, Type};
use super::{Maker, Rel, keyable, of_kind, select};

impl Maker<'_> {
    /// Pairs of columns that can be compared.
    fn comparable(a: &Rel, b: &Rel) -> Vec<(Col, Col)> {
        let mut pairs = Vec::new();
        for x in keyable(&a.cols) {
            for y in of_kind(&b.cols, |k| k == x.kind && k != Type::Bool) {
                pairs.push((x.clone(), y));
            }
        }
        pairs
    }

    /// Subqueries that hang on the rows around them, by more than `=` and in more places than WHERE.
    pub(super) fn around(&mut self, a: Rel, b: Rel) -> Rel {
        let (qa, qb, name) = (self.alias(), self.alias(), self.name());
        let pairs = Self::comparable(&a, &b);
        if pairs.is_empty() {
            return self.filter(a);
        }
        let (from_a, from_b) = (a.from(&qa), b.from(&qb));
        let (x, y) = self.chance.pick(&pairs);
        let operator = self.chance.pick(&["=", "=", "=", "<", ">=", "<>", "<=>"]);
        let mut on = format!("{qb}.{} {operator} {qa}.{}", y.name, x.name);
        if self.chance.of_hundred(25) {
            let (x, y) = self.chance.pick(&pairs);
            on = format!("{on} AND {qb}.{} = {qa}.{}", y.name, x.name);
        }
        if self.chance.of_hundred(25) {
            on = format!("{on} AND {}", self.condition(&qb, &b.cols));
        }
        let (x, y) = self.chance.pick(&pairs);
        let (x_name, y_name) = (format!("{qa}.{}", x.name), format!("{qb}.{}", y.name));
        let not = self.chance.pick(&["", "NOT "]);
        let having = self.chance.pick(&["", "", " HAVING count(*) > 1"]);
        let chosen: Vec<String> = a.cols.iter().map(|c| format!("{qa}.{}", c.name)).collect();
        let chosen = chosen.join(", ");
        let with = |sql: String, kind: Type| {
            let mut cols = a.cols.clone();
            cols.push(Col::made(name.clone(), kind));
            select(sql, cols)
        };
        let function = self.chance.pick(&["max", "min"]);
        let (value, kind) = match self.chance.below(4) {
            0 => ("count(*)".to_string(), Type::Long),
            1 => (format!("count(DISTINCT {y_name})"), Type::Long),
            _ => (format!("{function}({y_name})"), y.kind),
        };
        match self.chance.below(10) {
            0 => with(
                format!(
                    "SELECT {chosen}, {not}EXISTS (SELECT 1 FROM {from_b} WHERE {on}) AS {name} FROM {from_a}"
                ),
                Type::Bool,
            ),
            1 | 2 => with(
                format!(
                    "SELECT {chosen}, (SELECT {value} FROM {from_b} WHERE {on}{having}) AS {name} FROM {from_a}"
                ),
                kind,
            ),
            3 => with(
                format!(
                    "SELECT {chosen}, (SELECT {y_name} FROM {from_b} WHERE {on} ORDER BY {y_name} LIMIT 1) AS {name} \
                     FROM {from_a}"
                ),
                y.kind,
            ),
            4 => with(
                format!(
                    "SELECT {chosen}, {x_name} {not}IN (SELECT {y_name} FROM {from_b} WHERE {on}) AS {name} FROM {from_a}"
                ),
                Type::Bool,
            ),
            5 => with(
                format!(
                    "SELECT {chosen}, l.{name} FROM {from_a}, LATERAL (SELECT {value} AS {name} FROM {from_b} \
                     WHERE {on}{having}) AS l"
                ),
                kind,
            ),
            6 => with(
                format!(
                    "SELECT {chosen}, l.{name} FROM {from_a}, LATERAL (SELECT {y_name} AS {name} FROM {from_b} \
                     WHERE {on} ORDER BY {y_name} DESC LIMIT 2) AS l"
                ),
                y.kind,
            ),
            way => {
                let tested = match way {
                    7 => format!("{not}EXISTS (SELECT 1 FROM {from_b} WHERE {on})"),
                    8 => format!("EXISTS (SELECT {value} FROM {from_b} WHERE {on}{having})"),
                    _ => format!("{x_name} {not}IN (SELECT {y_name} FROM {from_b} WHERE {on})"),
                };
                let or = match self.chance.of_hundred(40) {
                    true => format!(" OR {}", self.condition(&qa, &a.cols)),
                    false => String::new(),
                };
                select(format!("SELECT * FROM {from_a} WHERE {tested}{or}"), a.cols)
            }
        }
    }

    /// INTERSECT and EXCEPT, also such as keep duplicates.
    pub(super) fn sets(&mut self, a: Rel, b: Rel) -> Rel {
        let (qa, qb) = (self.alias(), self.alias());
        let pairs: Vec<(Col, Col)> = keyable(&a.cols)
            .into_iter()
            .filter_map(|x| {
                let alike = of_kind(&b.cols, |k| k == x.kind);
                let same = alike.iter().find(|y| y.name == x.name).cloned();
                let other = same.or_else(|| alike.first().cloned())?;
                Some((x, other))
            })
            .collect();
        if pairs.is_empty() {
            return self.filter(a);
        }
        let pairs = self.chance.some(&pairs, 3);
        let word = self
            .chance
            .pick(&["INTERSECT", "INTERSECT ALL", "EXCEPT", "EXCEPT ALL"]);
        let left: Vec<String> = pairs
            .iter()
            .map(|(x, _)| format!("{qa}.{}", x.name))
            .collect();
        let right: Vec<String> = pairs
            .iter()
            .map(|(_, y)| format!("{qb}.{}", y.name))
            .collect();
        select(
            format!(
                "SELECT {} FROM {} {word} SELECT {} FROM {}",
                left.join(", "),
                a.from(&qa),
                right.join(", "),
                b.from(&qb)
            ),
            pairs.into_iter().map(|(x, _)| x.untraced()).collect(),
        )
    }

    /// A join whose key is one column of both sides.
    pub(super) fn using(&mut self, a: Rel, b: Rel) -> Rel {
        let (qa, qb) = (self.alias(), self.alias());
        let both: Vec<Col> = keyable(&a.cols)
            .into_iter()
            .filter(|x| {
                b.cols
                    .iter()
                    .any(|y| y.name == x.name && y.kind == x.kind && x.kind != Type::Bool)
            })
            .collect();
        if both.is_empty() {
            return self.filter(a);
        }
        let key = self.chance.pick(&both);
        let kind = self
            .chance
            .pick(&["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "FULL JOIN"]);
        let (mut items, mut cols) = (vec![key.name.clone()], vec![key.clone().untraced()]);
        for (q, rel) in [(&qa, &a), (&qb, &b)] {
            let others: Vec<Col> = rel
                .cols
                .iter()
                .filter(|c| c.name != key.name)
                .cloned()
                .collect();
            if others.is_empty() {
                continue;
            }
            for col in self.chosen(&others, 2) {
                let taken = cols.iter().any(|c: &Col| c.name == col.name);
                let name = if taken { self.name() } else { col.name.clone() };
                items.push(format!("{q}.{} AS {name}", col.name));
                cols.push(Col::made(name, col.kind));
            }
        }
        select(
            format!(
                "SELECT {} FROM {} {kind} {} USING ({})",
                items.join(", "),
                a.from(&qa),
                b.from(&qb),
                key.name
            ),
            cols,
        )
    }
}
