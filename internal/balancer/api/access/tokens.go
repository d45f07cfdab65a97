// SPDX-License-Identifier: Apache-2.0

package access

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"regexp"

	"github.com/jeoul/jeoul/internal/balancer/ops"
	"github.com/jeoul/jeoul/internal/text/keytable"
	"github.com/jeoul/jeoul/internal/text/yamlfile"
)

// maxTokens bounds the tokens of a file: each is compared with a client's.
const maxTokens = 1024

// token is a line of the file. The file has a token's SHA-256 only: tokens are random, of 256 bits, so that guessing
// one from its hash is as hard as guessing it.
type token struct {
	name string
	role ops.Role
	hash [sha256.Size]byte
}

// tokens are the tokens of the file.
type tokens []token

// tokenFile is the file as a whole.
type tokenFile struct{ tokens tokens }

var tokenFileKind = yamlfile.Kind{Noun: "a file of tokens", Needs: "tokens", MaxBytes: maxFile}

var tokenFileKeys = keytable.Table[tokenFile]{
	{Name: "tokens", Required: true,
		Value: keytable.Mappings(func(f *tokenFile) *[]token { return (*[]token)(&f.tokens) }, tokenKeys,
			keytable.Length{Max: maxTokens, Empty: "add one with `jeoul token`", TooMany: "that there can be"})},
}

var tokenKeys = keytable.Table[token]{
	{Name: "name", Required: true, Value: keytable.Optional(func(t *token) *string { return &t.name }, tokenName, "")},
	{Name: "role", Required: true, Value: keytable.Optional(func(t *token) *ops.Role {
		return &t.role
	}, keytable.Word(ops.Roles...), "")},
	{Name: "sha256", Required: true, Value: keytable.Optional(func(t *token) *[sha256.Size]byte {
		return &t.hash
	}, tokenHash, "")},
}

// namePattern matches the names that a token can have, which appear in the log.
var namePattern = regexp.MustCompile(`^[A-Za-z0-9._@-]{1,64}$`)

var tokenName = keytable.Scalar[string]{Parse: func(text string) (string, string) {
	if !namePattern.MatchString(text) {
		return "", yamlfile.Quote(text) + " is not 1 to 64 letters, digits and . _ @ -"
	}
	return text, ""
}}

var tokenHash = keytable.Scalar[[sha256.Size]byte]{Parse: func(text string) (hash [sha256.Size]byte, problem string) {
	if n, err := hex.Decode(hash[:], []byte(text[:min(len(text), 2*sha256.Size)])); err != nil || n != sha256.Size ||
		len(text) != 2*sha256.Size {
		return hash, "not the SHA-256 of a token in 64 hexadecimal digits; `jeoul token` writes it"
	}
	return hash, ""
}}

// parseTokens reads the text of the file. The error is a yamlfile.Problems.
func parseTokens(path string, text []byte) (tokens, error) {
	f, read := yamlfile.NewFile(path), tokenFile{}
	if root := f.Document(text, tokenFileKind); root != nil {
		keytable.Read(tokenFileKeys, f, root, "", &read)
	}
	seen := map[string]bool{}
	for i, t := range read.tokens {
		if seen[t.name] && t.name != "" {
			f.Fail(yamlfile.Join(yamlfile.Element("tokens", i), "name"),
				"%s is the name of another token, too; the log could not tell them apart", t.name)
		}
		seen[t.name] = true
	}
	return read.tokens, f.Problems.Err()
}

// clientOf finds the token that was sent, in constant time.
func (ts tokens) clientOf(sent string) (Client, error) {
	hash, found := sha256.Sum256([]byte(sent)), -1
	for i, t := range ts {
		found = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(hash[:], t.hash[:]), i, found)
	}
	if found < 0 {
		return Client{}, fmt.Errorf("%w: the token is unknown here, or was taken out of the file of tokens", ErrUnknown)
	}
	return Client{"token " + ts[found].name, ts[found].role}, nil
}

// NewToken returns a new token and its entry for a file of tokens, to follow "tokens:". Errors: an invalid name.
func NewToken(name string, role ops.Role) (secret, entry string, err error) {
	if _, problem := tokenName.Parse(name); problem != "" {
		return "", "", fmt.Errorf("the name %s", problem)
	}
	var random [32]byte
	if _, err := rand.Read(random[:]); err != nil {
		return "", "", fmt.Errorf("read random bytes: %w", err)
	}
	secret = base64.RawURLEncoding.EncodeToString(random[:])
	return secret, fmt.Sprintf("  - {name: %q, role: %s, sha256: %x}\n", name, role, sha256.Sum256([]byte(secret))), nil
}

// AddToken returns the text of a file of tokens with one more; an empty text becomes one. Errors: a
// yamlfile.Problems where the result would not be such a file.
func AddToken(path string, text []byte, entry string) ([]byte, error) {
	if len(text) == 0 {
		text = []byte("# Tokens of jeoul's API: who may do what. `jeoul token` adds one.\ntokens:\n")
	}
	if text[len(text)-1] != '\n' {
		text = append(text, '\n')
	}
	text = append(text, entry...)
	_, err := parseTokens(path, text)
	return text, err
}
