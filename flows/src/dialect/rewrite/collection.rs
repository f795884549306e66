//! Calls whose form is not the engine's: arrays, maps, lambdas, JSON, and times by units.

use sqlparser::ast::{BinaryOperator, Expr, Value};
use sqlparser::tokenizer::Span;

use super::Rewriter;
use super::expression::{call, infix, null, when, zone};
use super::function::next;
use super::interval;
use crate::dialect::{literal, naming};

/// The functions that take lambdas, and the position of the first one.
fn lambda_position(name: &str) -> Option<usize> {
    Some(match name {
        "transform" | "filter" | "exists" | "forall" | "map_filter" | "transform_keys"
        | "transform_values" | "array_sort" => 1,
        "aggregate" | "reduce" | "zip_with" => 2,
        _ => return None,
    })
}

impl Rewriter {
    /// Refuses a lambda where none is taken, and its absence where one is.
    pub(super) fn check_lambdas(&mut self, name: &str, args: &[&Expr], span: Span) {
        let first = lambda_position(name);
        for (index, arg) in args.iter().enumerate() {
            let is_lambda = matches!(arg, Expr::Lambda(_));
            let wanted = first.is_some_and(|first| index >= first);
            if is_lambda == wanted {
                continue;
            }
            let message = match is_lambda {
                true => format!("argument {} of {name} is a lambda function", index + 1),
                false => format!("argument {} of {name} is no lambda function", index + 1),
            };
            let help = "a lambda is written x -> x + 1 or (x, y) -> x + y";
            return self.fault("INVALID_LAMBDA_FUNCTION_CALL", message, span, Some(help));
        }
    }

    /// The engine's form of a call; `None` if it is the same.
    pub(super) fn collection(
        &mut self,
        name: &str,
        args: &mut Vec<Expr>,
        span: Span,
    ) -> Option<Expr> {
        let renamed = match name {
            "map" => "spark_map",
            "transform" => "spark_transform",
            "filter" => "spark_filter",
            "exists" => "spark_exists",
            "forall" => "spark_forall",
            "aggregate" | "reduce" => "spark_aggregate",
            "zip_with" => "spark_zip_with",
            "map_filter" => "spark_map_filter",
            "transform_keys" => "spark_transform_keys",
            "transform_values" => "spark_transform_values",
            "array_sort" if args.len() == 2 => "spark_sort_by",
            "array_sort" => "spark_array_sort",
            "getbit" => "bit_get",
            "printf" | "format_string" => {
                let known = args.first().and_then(literal::text);
                if known.is_none_or(formats_floats) {
                    let help = "round the number, or cast it to a decimal, before it is written";
                    self.refuse("a float in the format of format_string", span, Some(help));
                }
                "format_string"
            }
            "arrays_zip" => {
                let names: Vec<Expr> = args
                    .iter()
                    .enumerate()
                    .map(|(index, arg)| {
                        literal::string(match arg {
                            Expr::Identifier(_) | Expr::CompoundIdentifier(_) => {
                                naming::column_name(arg)
                            }
                            _ => index.to_string(),
                        })
                    })
                    .collect();
                args.splice(0..0, names);
                "spark_arrays_zip"
            }
            "sequence" => match args.get(2) {
                Some(step) if interval::of_literal(step).is_some() => {
                    return Some(self.sequence_by_interval(args, span));
                }
                _ => return None,
            },
            "decode" if args.len() > 2 => return Some(decode_case(args)),
            "from_json" | "to_json" => {
                args.push(zone());
                name
            }
            "like" | "ilike" => {
                let (text, pattern) = (next(args), next(args));
                let (expr, pattern) = (Box::new(text), Box::new(pattern));
                return Some(match name {
                    "like" => Expr::Like {
                        negated: false,
                        any: false,
                        expr,
                        pattern,
                        escape_char: None,
                    },
                    _ => Expr::ILike {
                        negated: false,
                        any: false,
                        expr,
                        pattern,
                        escape_char: None,
                    },
                });
            }
            "current_timezone" => return Some(zone()),
            "convert_timezone" => {
                if args.len() == 2 {
                    args.insert(0, zone());
                }
                name
            }
            "make_timestamp"
            | "make_timestamp_ltz"
            | "try_make_timestamp"
            | "try_make_timestamp_ltz" => {
                if args.len() == 6 {
                    args.push(zone());
                }
                args.push(zone());
                match name.starts_with("try") {
                    true => "spark_try_make_timestamp",
                    false => "spark_make_timestamp",
                }
            }
            "make_timestamp_ntz" => "spark_make_timestamp",
            "try_make_timestamp_ntz" => "spark_try_make_timestamp",
            "try_to_timestamp" if args.len() == 1 => {
                return Some(self.try_cast(next(args), "timestamp"));
            }
            "try_to_date" if args.len() == 1 => return Some(self.try_cast(next(args), "date")),
            "try_to_date" => "spark_try_to_date",
            "try_to_timestamp" => {
                args.push(zone());
                "spark_try_to_timestamp"
            }
            "timestampadd" | "dateadd" | "date_add" if args.len() == 3 => {
                self.unit(&mut args[0], span);
                args.push(zone());
                "timestampadd"
            }
            "timestampdiff" | "datediff" | "date_diff" if args.len() == 3 => {
                self.unit(&mut args[0], span);
                args.push(zone());
                "timestampdiff"
            }
            _ => return None,
        };
        Some(call(renamed, std::mem::take(args)))
    }

    fn try_cast(&mut self, value: Expr, type_name: &str) -> Expr {
        call(
            "spark_try_cast",
            vec![value, literal::string(type_name), zone()],
        )
    }

    /// A unit is written as a bare word.
    fn unit(&mut self, arg: &mut Expr, span: Span) {
        let name = match &*arg {
            Expr::Identifier(ident) => ident.value.to_uppercase(),
            other => match literal::text(other) {
                Some(text) => text.to_uppercase(),
                None => return self.refuse("a unit that is no word", span, None),
            },
        };
        *arg = literal::string(name);
    }

    /// `sequence(a, b, INTERVAL ...)`.
    fn sequence_by_interval(&mut self, args: &mut Vec<Expr>, span: Span) -> Expr {
        let (start, stop, step) = (next(args), next(args), next(args));
        let Some(parts) = interval::of_literal(&step) else {
            self.refuse("such a step of sequence", span, None);
            return null();
        };
        call(
            "spark_sequence",
            vec![
                start,
                stop,
                literal::int(parts.months),
                literal::int(parts.days),
                literal::int(parts.micros),
                zone(),
            ],
        )
    }
}

/// Whether a format writes a float, of which Java rounds halves up and the engine to even.
fn formats_floats(format: &str) -> bool {
    let mut rest = format;
    while let Some((_, behind)) = rest.split_once('%') {
        let end = behind.find(|c: char| c.is_ascii_alphabetic() || c == '%');
        match end.and_then(|end| behind[end..].chars().next()) {
            Some('e' | 'E' | 'f' | 'g' | 'G' | 'a' | 'A') => return true,
            Some(_) => rest = &behind[end.unwrap_or(0) + 1..],
            None => return false,
        }
    }
    false
}

/// `decode(x, a, 1, b, 2, 3)`: nulls are equal here.
fn decode_case(args: &mut Vec<Expr>) -> Expr {
    let value = next(args);
    let mut branches = vec![];
    while args.len() > 1 {
        let (wanted, result) = (next(args), next(args));
        let equal = infix(value.clone(), BinaryOperator::Spaceship, wanted);
        let equal = match equal {
            Expr::BinaryOp { left, right, .. } => Expr::IsNotDistinctFrom(left, right),
            other => other,
        };
        branches.push((equal, result));
    }
    let otherwise = args.pop();
    when(branches, otherwise.or(Some(Expr::value(Value::Null))))
}
