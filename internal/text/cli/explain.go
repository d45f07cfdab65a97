// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/jeoul/jeoul/internal/text/nearest"
)

// Explain converts an error of the parser to one that names the allowed words, and the one nearest to the typed word.
// args are the words of the command line.
func Explain(app *kong.Application, args []string, err error) error {
	node, rest := walk(app.Node, args)
	text := err.Error()
	switch {
	case len(Visible(node)) > 0 && (len(rest) == 0 || !strings.HasPrefix(rest[0], "-")):
		err = noCommand(app, node, rest)
	case unknownFlag.MatchString(text):
		err = noFlag(app, node, unknownFlag.FindStringSubmatch(text)[1])
	case wrongChoice.MatchString(text):
		match := wrongChoice.FindStringSubmatch(text)
		err = noChoice(match[1], match[2], choices(node, match[1]))
	case unreadChoice.MatchString(text) && choices(node, unreadChoice.FindStringSubmatch(text)[1]) != nil:
		match := unreadChoice.FindStringSubmatch(text)
		err = noChoice(match[1], match[2], choices(node, match[1]))
	case missingSome.MatchString(text):
		err = errors.Join(fewArguments(app, node), missing(node))
	case strings.HasPrefix(text, Name(node)+": "): // kong has not checked for missing flags yet
		err = errors.Join(missing(node), err)
	case strings.HasPrefix(text, "unexpected argument "):
		err = manyArguments(app, node, unexpected.FindStringSubmatch(text)[1])
	}
	return fmt.Errorf("%w\nsee `%s --help`", err, Called(app, node))
}

// The errors of kong. The test of the model compares them with kong's.
var (
	unknownFlag = regexp.MustCompile(`^unknown flag (-[^\s,]*)`)
	wrongChoice = regexp.MustCompile(`^(\S+)(?: \.\.\.\]?)? must be one of .* but got "(.*)"$`)
	missingSome = regexp.MustCompile(`^(expected "|missing positional arguments |missing flags: )`)
	unexpected  = regexp.MustCompile(`^unexpected argument (.*?)(?:, did you mean .*)?$`)
	// unreadChoice: a type with its own parser rejects other words before kong does, and may accept more words than the
	// flag.
	unreadChoice = regexp.MustCompile(`^(--[a-z-]+): [^"]*"([^"]*)"`)
)

// noCommand returns an error that lists the commands.
func noCommand(app *kong.Application, node *kong.Node, rest []string) error {
	names := commandNames(node)
	if len(rest) == 0 {
		return fmt.Errorf("`%s` of what? Use one of %s", Called(app, node), strings.Join(names, ", "))
	}
	if there := elsewhere(app, app.Node, rest[0]); len(there) > 0 {
		return fmt.Errorf("%s: unknown command; did you mean %s?", rest[0], strings.Join(there, " or "))
	}
	return fmt.Errorf("%s: %s", rest[0], allowed("command", rest[0], names))
}

// elsewhere returns the command lines of the commands below a node whose name is a word.
func elsewhere(app *kong.Application, node *kong.Node, word string) (there []string) {
	for _, child := range Visible(node) {
		if child.Name == word {
			there = append(there, "`"+app.Name+" "+Name(child)+"`")
		}
		there = append(there, elsewhere(app, child, word)...)
	}
	return there
}

func commandNames(node *kong.Node) (names []string) {
	for _, child := range Visible(node) {
		names = append(names, child.Name)
	}
	return names
}

// allowed names the nearest allowed word for an unknown word, or else all of them.
func allowed(what, word string, names []string) string {
	if near := nearby(word, names); near != "" {
		return fmt.Sprintf("unknown %s; did you mean %s?", what, near)
	}
	return fmt.Sprintf("unknown %s; use one of %s", what, strings.Join(names, ", "))
}

// nearby returns the only name that begins with a word, or else the nearest name, or "".
func nearby(word string, names []string) string {
	var begun []string
	for _, name := range names {
		if len(word) > 1 && strings.HasPrefix(name, word) {
			begun = append(begun, name)
		}
	}
	if len(begun) == 1 {
		return begun[0]
	}
	near := nearest.Word(word, names)
	if len(word) <= shortWord && near != "" && near[0] != word[0] {
		return ""
	}
	return near
}

// shortWord is the length up to which a word with another first letter is a different word: two edits change it into
// any word.
const shortWord = 4

// noFlag returns an error that lists a command's flags.
func noFlag(app *kong.Application, node *kong.Node, flag string) error {
	own, all := flagNames(node)
	if near := nearby(flag, all); near != "" && len(flag) > 2 {
		return fmt.Errorf("%s: unknown flag; did you mean %s?", flag, near)
	}
	return fmt.Errorf("%s: unknown flag; `%s` takes %s", flag, Called(app, node), strings.Join(own, ", "))
}

// choices returns the words that a flag or an argument accepts, by its name in an error; none if it accepts any word.
func choices(node *kong.Node, name string) []string {
	for _, group := range node.AllFlags(false) {
		for _, flag := range group {
			if "--"+flag.Name == name {
				return Choices(flag.Value)
			}
		}
	}
	for _, value := range node.Positional {
		if strings.Contains(name, "<"+value.Name+">") {
			return Choices(value)
		}
	}
	return nil
}

// Choices returns the words that a flag or an argument accepts; none if it accepts any word. It omits the empty word,
// which means that the flag is not given.
func Choices(value *kong.Value) []string {
	if value.Enum == "" {
		return nil
	}
	return slices.DeleteFunc(value.EnumSlice(), func(word string) bool { return word == "" })
}

func noChoice(name, got string, words []string) error {
	name, list := strings.Trim(name, "[]<>"), strings.Join(words, ", ")
	if near := nearby(got, words); near != "" {
		return fmt.Errorf("%s: %q is not possible; did you mean %s? Use one of %s", name, got, near, list)
	}
	return fmt.Errorf("%s: %q is not possible; use one of %s", name, got, list)
}

// missing returns an error that names the required flags of a command, and their purpose.
func missing(node *kong.Node) error {
	var errs []error
	together := map[string][]string{}
	for _, group := range node.AllFlags(true) {
		for _, flag := range group {
			switch {
			case !flag.Required || flag.Set:
			case len(flag.Xor) > 0:
				together[flag.Xor[0]] = append(together[flag.Xor[0]], flag.Summary())
			default:
				errs = append(errs, fmt.Errorf("%s is missing: %s", flag.Summary(), flag.Help))
			}
		}
	}
	for _, flags := range together {
		errs = append(errs, fmt.Errorf("use one of %s", strings.Join(flags, ", ")))
	}
	return errors.Join(errs...)
}

// fewArguments returns an error that names the arguments of a command, and their values.
func fewArguments(app *kong.Application, node *kong.Node) error {
	var errs []error
	for _, value := range node.Positional {
		if value.Required && !value.Set {
			errs = append(errs, fmt.Errorf("%s is missing: %s", placeOf(value), value.Help))
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return errors.Join(append(errs, fmt.Errorf("write %s", usage(app, node)))...)
}

// manyArguments returns an error that names the arguments of a command that was given one too many.
func manyArguments(app *kong.Application, node *kong.Node, word string) error {
	if node.Parent.DefaultCmd == node {
		if near := nearby(word, commandNames(node.Parent)); near != "" {
			return fmt.Errorf("%s: unknown command; did you mean %s?", word, near)
		}
	}
	if len(node.Positional) == 0 {
		return fmt.Errorf("%s: `%s` takes no arguments, only flags", word, Called(app, node))
	}
	return fmt.Errorf("%s: one argument too many; write %s", word, usage(app, node))
}

// usage returns a command line of a command, with its arguments.
func usage(app *kong.Application, node *kong.Node) string {
	words := []string{Called(app, node)}
	for _, value := range node.Positional {
		words = append(words, placeOf(value))
	}
	return "`" + strings.Join(words, " ") + "`"
}

// placeOf returns an argument in capitals, as in the usage lines of kubectl and ip.
func placeOf(value *kong.Value) string {
	text := strings.ToUpper(value.Name)
	if value.IsCumulative() {
		text += "..."
	}
	if !value.Required {
		return "[" + text + "]"
	}
	return text
}
