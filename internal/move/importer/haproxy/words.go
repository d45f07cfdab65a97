// SPDX-License-Identifier: Apache-2.0

package haproxy

import (
	"errors"
	"strings"
)

// Errors of a line's quotations.
var (
	errOpenQuote = errors.New("a quotation that does not end")
	errVariable  = errors.New("a variable of the environment; write its value")
)

// escapes are what stands for characters after a backslash, beside the character itself.
var escapes = map[byte]byte{'n': '\n', 'r': '\r', 't': '\t'}

// split splits a line into words by the rules of section 2.2 of HAProxy's configuration manual.
func split(text string) ([]string, error) {
	var words []string
	var word strings.Builder
	quote, within := byte(0), false
	end := func() {
		if within {
			words = append(words, word.String())
			word.Reset()
			within = false
		}
	}
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c == '$' && quote == '"':
			return nil, errVariable
		case c == '\\' && quote != '\'' && i+1 < len(text):
			i++
			within = true
			if replaced, ok := escapes[text[i]]; ok {
				word.WriteByte(replaced)
			} else {
				word.WriteByte(text[i])
			}
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '"' || c == '\''):
			quote, within = c, true
		case quote == 0 && (c == ' ' || c == '\t'):
			end()
		case quote == 0 && c == '#':
			end()
			return words, nil
		default:
			within = true
			word.WriteByte(c)
		}
	}
	if quote != 0 {
		return nil, errOpenQuote
	}
	end()
	return words, nil
}
