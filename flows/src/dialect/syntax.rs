//! Spark's lexical rules and the operators that sqlparser's Databricks dialect leaves out. The one
//! dialect for everything that is parsed: statements, queries and expressions.

use std::any::TypeId;

use sqlparser::ast::{BinaryOperator, Expr, Ident};
use sqlparser::dialect::{DatabricksDialect, Dialect, Precedence};
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::Token;

use super::literal;

/// The Databricks dialect, and beside it `DIV`, backslash escapes in strings, adjoining strings,
/// numbers with a suffix (`1L`, `0.5D`), and intervals written as one string.
#[derive(Debug, Default, Clone, Copy)]
pub struct SparkDialect;

const BASE: DatabricksDialect = DatabricksDialect;

impl Dialect for SparkDialect {
    // The parser asks for dialects by identity; this one is to be taken for Databricks.
    fn dialect(&self) -> TypeId {
        TypeId::of::<DatabricksDialect>()
    }

    fn is_delimited_identifier_start(&self, character: char) -> bool {
        BASE.is_delimited_identifier_start(character)
    }

    fn is_identifier_start(&self, character: char) -> bool {
        BASE.is_identifier_start(character)
    }

    fn is_identifier_part(&self, character: char) -> bool {
        BASE.is_identifier_part(character)
    }

    fn supports_string_literal_backslash_escape(&self) -> bool {
        true
    }

    fn ignores_wildcard_escapes(&self) -> bool {
        true
    }

    fn supports_string_literal_concatenation(&self) -> bool {
        true
    }

    fn supports_filter_during_aggregation(&self) -> bool {
        true
    }

    fn supports_group_by_expr(&self) -> bool {
        true
    }

    fn supports_table_versioning(&self) -> bool {
        true
    }

    fn supports_lambda_functions(&self) -> bool {
        true
    }

    fn supports_select_wildcard_except(&self) -> bool {
        true
    }

    fn require_interval_qualifier(&self) -> bool {
        false
    }

    fn supports_struct_literal(&self) -> bool {
        true
    }

    fn supports_nested_comments(&self) -> bool {
        true
    }

    fn supports_group_by_with_modifier(&self) -> bool {
        true
    }

    fn supports_values_as_table_factor(&self) -> bool {
        true
    }

    fn supports_optimize_table(&self) -> bool {
        true
    }

    fn supports_bang_not_operator(&self) -> bool {
        true
    }

    fn supports_cte_without_as(&self) -> bool {
        true
    }

    fn supports_select_item_multi_column_alias(&self) -> bool {
        true
    }

    fn supports_long_type_as_bigint(&self) -> bool {
        true
    }

    fn supports_from_first_select(&self) -> bool {
        true
    }

    fn supports_map_literal_with_angle_brackets(&self) -> bool {
        true
    }

    fn supports_bitwise_shift_operators(&self) -> bool {
        true
    }

    fn supports_order_by_all(&self) -> bool {
        true
    }

    fn supports_window_clause_named_window_reference(&self) -> bool {
        true
    }

    fn supports_window_function_null_treatment_arg(&self) -> bool {
        true
    }

    fn allow_extract_custom(&self) -> bool {
        true
    }

    fn parse_prefix(&self, parser: &mut Parser) -> Option<Result<Expr, ParserError>> {
        let token = parser.peek_token();
        match token.token {
            // A number ends before its suffix: `0.5D`.
            Token::Number(number, false) => {
                let [_, following] = parser.peek_tokens_with_location();
                let Token::Word(word) = following.token else {
                    return None;
                };
                let written = format!("{number}{}", word.value);
                let adjoins = token.span.end == following.span.start;
                if !adjoins || !literal::is_suffixed_number(&written) {
                    return None;
                }
                parser.next_token();
                parser.next_token();
                Some(Ok(Expr::Identifier(Ident::with_span(token.span, written))))
            }
            _ => None,
        }
    }

    fn parse_infix(
        &self,
        parser: &mut Parser,
        left: &Expr,
        precedence: u8,
    ) -> Option<Result<Expr, ParserError>> {
        if !parser.parse_keyword(Keyword::DIV) {
            return None;
        }
        Some(
            parser
                .parse_subexpr(precedence)
                .map(|right| Expr::BinaryOp {
                    left: Box::new(left.clone()),
                    op: BinaryOperator::MyIntegerDivide,
                    right: Box::new(right),
                }),
        )
    }

    fn get_next_precedence(&self, parser: &Parser) -> Option<Result<u8, ParserError>> {
        match &parser.peek_token_ref().token {
            Token::Word(word) if word.keyword == Keyword::DIV => {
                Some(Ok(self.prec_value(Precedence::MulDivModOp)))
            }
            _ => None,
        }
    }
}
