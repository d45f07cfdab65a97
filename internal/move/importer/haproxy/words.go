// SPDX-License-Identifier: Apache-2.0

package haproxy

import (
	"errors"
	"regexp"
	"strconv"
	"strings"
)

// Errors of a line's quoting.
var (
	errOpenQuote = errors.New("a quotation that does not end")
	errVariable  = errors.New("a variable of the environment; write its value")
)

// escapes maps the character after a backslash to the character that both mean. Before any other character, a backslash
// is literal, as in (.*)\.php and \1.
var escapes = map[byte]byte{'n': '\n', 'r': '\r', 't': '\t', ' ': ' ', '\\': '\\', '#': '#', '"': '"',
	'\'': '\'', '$': '$'}

// hexadecimal matches a character's number after a backslash.
var hexadecimal = regexp.MustCompile(`^x[0-9a-fA-F]{2}`)

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
			within = true
			if number := hexadecimal.FindString(text[i+1:]); number != "" {
				n, _ := strconv.ParseUint(number[1:], 16, 8) // always two hexadecimal digits
				word.WriteByte(byte(n))
				i += len(number)
			} else if replaced, ok := escapes[text[i+1]]; ok && (text[i+1] != '$' || quote == '"') {
				word.WriteByte(replaced)
				i++
			} else {
				word.WriteByte(c)
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
