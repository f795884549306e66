//! Reads the relations of a parsed query: which are streams, which read files.
//!
//! sqlparser knows no streams, so `STREAM t` reaches the syntax tree as the table function
//! [`STREAM_FUNCTION`]. The helpers here take it apart again; nobody else needs to know its name.

use sqlparser::ast::{Expr, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, ObjectName};
use sqlparser::ast::{TableFactor, Value};
use sqlparser::tokenizer::Span;

/// The table function that stands for `STREAM` in syntax trees.
pub const STREAM_FUNCTION: &str = "__windrow_stream";
const READ_FILES: &str = "read_files";
const READ_STREAM: &str = "read_stream";

/// What a relation with or without `STREAM` reads.
#[derive(Debug, Clone, PartialEq)]
pub enum Origin<'a> {
    /// A table or view, by the parts of its name.
    Table(Vec<Ident>),
    /// `read_files(path, option => value, ...)`, by its arguments.
    Files(&'a [FunctionArg]),
    /// Another table function, which can't be streamed.
    Function(&'a ObjectName, &'a [FunctionArg]),
    /// Something that is no relation, such as `STREAM(1 + 1)`.
    Other,
}

/// A relation under `STREAM`.
#[derive(Debug, Clone, PartialEq)]
pub struct Stream<'a> {
    pub origin: Origin<'a>,
    /// Options of `read_stream(...)` and of `WITH (...)`, keys as written.
    pub options: Vec<(&'a Ident, &'a Expr)>,
    /// Where the word STREAM stands.
    pub span: Span,
}

/// The stream that a relation is, or `None` if it has no `STREAM`.
pub fn stream_of(factor: &TableFactor) -> Option<Stream<'_>> {
    let TableFactor::Table {
        name,
        args: Some(args),
        ..
    } = factor
    else {
        return None;
    };
    if !is_named(name, STREAM_FUNCTION) {
        return None;
    }
    let span = name
        .0
        .first()
        .and_then(|part| part.as_ident())
        .map_or(Span::empty(), |i| i.span);
    let mut options: Vec<_> = args.args.iter().filter_map(option).collect();
    let origin = match args.args.first() {
        Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(expr))) => {
            streamed_origin(expr, &mut options)
        }
        _ => Origin::Other,
    };
    Some(Stream {
        origin,
        options,
        span,
    })
}

/// The arguments of a `read_files(...)` without `STREAM`.
pub fn files_of(factor: &TableFactor) -> Option<&[FunctionArg]> {
    match factor {
        TableFactor::Table {
            name,
            args: Some(args),
            ..
        } if is_named(name, READ_FILES) => Some(&args.args),
        _ => None,
    }
}

fn streamed_origin<'a>(expr: &'a Expr, options: &mut Vec<(&'a Ident, &'a Expr)>) -> Origin<'a> {
    match expr {
        Expr::Identifier(ident) => Origin::Table(vec![ident.clone()]),
        Expr::CompoundIdentifier(parts) => Origin::Table(parts.clone()),
        Expr::Function(function) => {
            let FunctionArguments::List(list) = &function.args else {
                return Origin::Other;
            };
            if is_named(&function.name, READ_FILES) {
                return Origin::Files(&list.args);
            }
            if !is_named(&function.name, READ_STREAM) {
                return Origin::Function(&function.name, &list.args);
            }
            options.extend(list.args.iter().filter_map(option));
            list.args
                .first()
                .and_then(table_in_string)
                .map_or(Origin::Other, Origin::Table)
        }
        _ => Origin::Other,
    }
}

/// The name in `read_stream("a.b", ...)`; backticks in the string quote a part.
fn table_in_string(argument: &FunctionArg) -> Option<Vec<Ident>> {
    let FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) = argument else {
        return None;
    };
    let (text, span) = match expr {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) | Value::DoubleQuotedString(text) => (text, value.span),
            _ => return None,
        },
        Expr::Identifier(ident) => return Some(vec![ident.clone()]),
        Expr::CompoundIdentifier(parts) => return Some(parts.clone()),
        _ => return None,
    };
    let mut parts = Vec::new();
    let mut part = String::new();
    let mut quoted = false;
    for character in text.chars() {
        match character {
            '`' => quoted = !quoted,
            '.' if !quoted => parts.push(std::mem::take(&mut part)),
            other => part.push(other),
        }
    }
    parts.push(part);
    let idents = parts.into_iter().map(|part| {
        let mut ident = Ident::with_quote('`', part.trim());
        ident.span = span;
        ident
    });
    Some(idents.collect())
}

fn option(argument: &FunctionArg) -> Option<(&Ident, &Expr)> {
    match argument {
        FunctionArg::Named {
            name,
            arg: FunctionArgExpr::Expr(value),
            ..
        } => Some((name, value)),
        _ => None,
    }
}

fn is_named(name: &ObjectName, function: &str) -> bool {
    match name.0.as_slice() {
        [part] => part
            .as_ident()
            .is_some_and(|i| i.value.eq_ignore_ascii_case(function)),
        _ => false,
    }
}
