// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"net/textproto"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/jeoul/jeoul/internal/balancer/lb"
	"github.com/jeoul/jeoul/internal/text/keytable"
	"github.com/jeoul/jeoul/internal/text/yamlfile"
)

// Bounds of checks.
const (
	maxChecks        = 8
	shortestInterval = 100 * time.Millisecond
	longestInterval  = time.Hour
	shortestTimeout  = 10 * time.Millisecond
	longestTimeout   = time.Minute
	longestExpiry    = 365 * 24 * time.Hour
	mostJitter       = 50
	mostInRow        = 100
	maxHeaders       = 32
	maxStatus        = 16
	maxArguments     = 64
	// In bytes.
	maxPath     = 2048
	maxHost     = 253
	maxHeader   = 1024
	maxAnswer   = 255
	maxArgument = 4096
	maxPattern  = 1000
	// maxPayload fits a datagram on every link (RFC 8200 section 5, less the headers).
	maxPayload = 1200
)

// What several checks require.
const (
	requireAll = "all"
	requireAny = "any"
)

// oneOf is one of some words.
func oneOf(words ...string) keytable.Scalar[string] {
	return keytable.Scalar[string]{
		Parse: func(text string) (string, string) {
			if !slices.Contains(words, text) {
				return "", fmt.Sprintf("unknown word %s: use one of %s", yamlfile.Quote(text),
					strings.Join(words, ", "))
			}
			return text, ""
		},
		Show:   asIs,
		Kind:   "`" + strings.Join(words, "`, `") + "`",
		Schema: map[string]any{"enum": words},
	}
}

// percent is a share from 0% to most.
func percent(most uint64) keytable.Scalar[uint8] { return share(0, most) }

// share is one in per cent, from least to most.
func share(least, most uint64) keytable.Scalar[uint8] {
	return keytable.Scalar[uint8]{
		Parse: func(text string) (uint8, string) {
			number, sign := strings.CutSuffix(text, "%")
			n, ok := keytable.Decimal(number, most)
			if !ok || !sign || n < least {
				return 0, fmt.Sprintf("%s is not a share in per cent, from %d%% to %d%%; write one such as 10%%",
					yamlfile.Quote(text), least, most)
			}
			return uint8(n), ""
		},
		Show:   func(n uint8) string { return strconv.Itoa(int(n)) + "%" },
		Kind:   fmt.Sprintf("a share from %d%% to %d%%", least, most),
		Schema: map[string]any{"type": "string", "pattern": "^[0-9]{1,3}%$"},
	}
}

// text is what fits a pattern, of up to so many bytes.
func text(kind, pattern, advice string, most int) keytable.Scalar[string] {
	fits := regexp.MustCompile(pattern)
	return keytable.Scalar[string]{
		Parse: func(text string) (string, string) {
			switch {
			case len(text) > most:
				return "", fmt.Sprintf("longer than %d bytes", most)
			case !fits.MatchString(text):
				return "", yamlfile.Quote(text) + " " + advice
			}
			return text, ""
		},
		Show:   asIs,
		Kind:   kind,
		Schema: map[string]any{"type": "string", "pattern": pattern, "maxLength": most},
	}
}

var (
	httpMethod = text("a method in capitals", `^[A-Z]{1,16}$`,
		"is not a method of HTTP; write one such as GET, HEAD or OPTIONS", maxPath)
	httpPath = text("a path that begins with `/`", `^/[!-"$-~]*$`,
		"is not a path; write one such as /healthz, with other than printable ASCII characters escaped (%20)", maxPath)
	hostName = text("a name", `^[!-.0-~]+$`, "is not the name of a host; write one such as www.example.com", maxHost)
)

// plainText is text without control characters, of up to so many bytes.
func plainText(most int) keytable.Scalar[string] {
	return keytable.Scalar[string]{
		Parse: func(text string) (string, string) {
			switch {
			case text == "":
				return "", "empty; write it, or remove the line"
			case len(text) > most:
				return "", fmt.Sprintf("longer than %d bytes", most)
			case strings.ContainsFunc(text, unicode.IsControl):
				return "", yamlfile.Quote(text) + " holds a control character"
			}
			return text, ""
		},
		Show: asIs,
		Kind: "text",
		// Digits alone are a number to YAML.
		Schema: map[string]any{"type": []string{"string", "number", "boolean"}, "minLength": 1, "maxLength": most},
	}
}

// absolutePath is that of a file.
var absolutePath = keytable.Scalar[string]{
	Parse: func(path string) (string, string) {
		if !filepath.IsAbs(path) || strings.ContainsFunc(path, unicode.IsControl) || len(path) > maxArgument {
			return "", yamlfile.Quote(path) + " is not an absolute path; write one such as /etc/ssl/ca.pem"
		}
		return filepath.Clean(path), ""
	},
	Show:   asIs,
	Kind:   "an absolute path",
	Schema: map[string]any{"type": "string", "pattern": "^/", "maxLength": maxArgument},
}

// expression is a regular expression.
var expression = keytable.Scalar[string]{
	Parse: func(text string) (string, string) {
		if len(text) > maxPattern || text == "" {
			return "", fmt.Sprintf("a regular expression has from 1 to %d bytes", maxPattern)
		}
		if _, err := regexp.Compile(text); err != nil {
			return "", fmt.Sprintf(
				"%s does not compile (%v); write it as RE2 has it: https://github.com/google/re2/wiki/Syntax",
				yamlfile.Quote(text), err)
		}
		return text, ""
	},
	Show:   asIs,
	Kind:   fmt.Sprintf("a regular expression (RE2) of up to %d bytes", maxPattern),
	Schema: map[string]any{"type": []string{"string", "number", "boolean"}, "minLength": 1, "maxLength": maxPattern},
}

// notOurs are the header fields that the checker sets by itself.
var notOurs = []string{"Host", "Connection", "Content-Length", "Transfer-Encoding", "Upgrade", "Te", "Trailer",
	"Keep-Alive", "Proxy-Connection"}

var fieldName = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")

// httpHeader is a header field.
var httpHeader = keytable.Scalar[lb.Header]{
	Parse: func(text string) (lb.Header, string) {
		name, value, ok := strings.Cut(text, ":")
		value = strings.TrimSpace(value)
		switch {
		case !ok || !fieldName.MatchString(name) || strings.ContainsFunc(value, unicode.IsControl) ||
			len(text) > maxHeader:
			return lb.Header{}, yamlfile.Quote(text) + " is not a header field; write one such as \"X-Check: jeoul\""
		case textproto.CanonicalMIMEHeaderKey(name) == "Host":
			return lb.Header{}, "the request's host is written under host"
		case slices.Contains(notOurs, textproto.CanonicalMIMEHeaderKey(name)):
			return lb.Header{}, name + " is set by the check itself; remove it"
		}
		return lb.Header{Name: name, Value: value}, ""
	},
	Show:   func(h lb.Header) string { return h.Name + ": " + h.Value },
	Kind:   "`\"NAME: VALUE\"`",
	Schema: map[string]any{"type": "string", "pattern": "^[^:]+:", "maxLength": maxHeader},
}

// httpStatus is a status code, or a range of them.
var httpStatus = keytable.Scalar[lb.StatusRange]{
	Parse: func(text string) (lb.StatusRange, string) {
		from, to, several := strings.Cut(text, "-")
		if !several {
			to = from
		}
		first, firstOK := keytable.Decimal(from, 599)
		last, lastOK := keytable.Decimal(to, 599)
		if !firstOK || !lastOK || first < 100 || last < first {
			return lb.StatusRange{}, yamlfile.Quote(text) +
				" is not a status code from 100 to 599, or a range of them; write 200 or 200-299"
		}
		return lb.StatusRange{First: uint16(first), Last: uint16(last)}, ""
	},
	Show: lb.StatusRange.String,
	Kind: "a status code as `200`, or a range as `200-299`",
	Schema: map[string]any{"type": []string{"string", "integer"}, "minimum": 100, "maximum": 599,
		"pattern": "^[1-5][0-9]{2}(-[1-5][0-9]{2})?$"},
}

// payload is what a datagram holds: text, in which a backslash begins an escape of Go's.
var payload = keytable.Scalar[string]{
	Parse: func(text string) (string, string) {
		bytes, err := strconv.Unquote(`"` + strings.ReplaceAll(text, `"`, `\"`) + `"`)
		switch {
		case err != nil || bytes == "":
			return "", yamlfile.Quote(text) +
				` is not the content of a datagram; write text, a backslash as \\ and other bytes as \x00`
		case len(bytes) > maxPayload:
			return "", fmt.Sprintf("%d bytes are more than the %d that fit a datagram on every link", len(bytes),
				maxPayload)
		}
		return bytes, ""
	},
	Show: func(bytes string) string {
		quoted := strconv.QuoteToASCII(bytes)
		return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
	},
	Kind:   fmt.Sprintf("text of up to %d bytes, others than printable ones as `\\n` or `\\x00`", maxPayload),
	Schema: map[string]any{"type": []string{"string", "number", "boolean"}, "minLength": 1},
}
