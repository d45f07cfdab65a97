// SPDX-License-Identifier: Apache-2.0

// Package manpage makes manual pages, one for each command, from the model that parses the command line. The pages
// include the texts of `--help`.
package manpage

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
	"github.com/cpuguy83/go-md2man/v2/md2man"
)

// The sections of the manual.
const (
	SectionCommands = 1
	SectionFiles    = 5
)

// manual is the title above every page.
const manual = "Jeoul"

// Page is a manual page.
type Page struct {
	// Name is the file's name, such as jeoul-run.1.
	Name string
	// Roff is the text for man(1).
	Roff []byte
}

// Document makes a page from a text in Markdown. The page's footer has release, such as "jeoul 1.2". Headings in the
// text begin at the second level.
func Document(name string, section int, release, summary, text string) Page {
	var b strings.Builder
	fmt.Fprintf(&b, "# %q %q \"\" %q %q\n\n## NAME\n%s - %s\n\n%s", name, fmt.Sprint(section), release, manual, name,
		plain(sentence(summary)), text)
	return Page{Name: fmt.Sprintf("%s.%d", name, section), Roff: md2man.Render([]byte(b.String()))}
}

// Commands makes the pages of a program: one for the program itself, and one for each of its commands that is not
// hidden. Every page ends with also, such as files and other pages.
func Commands(app *kong.Application, release, also string) []Page {
	var pages []Page
	var visit func(*kong.Node)
	visit = func(node *kong.Node) {
		pages = append(pages, Document(nameOf(node), SectionCommands, release, node.Help, text(node)+also))
		for _, child := range visible(node) {
			visit(child)
		}
	}
	visit(app.Node)
	return pages
}

// nameOf returns the name of a command's page: jeoul-backend-drain.
func nameOf(node *kong.Node) string { return strings.ReplaceAll(Command(node), " ", "-") }

// Command returns the command line of a command without its arguments: jeoul backend drain.
func Command(node *kong.Node) string {
	if node.Parent == nil {
		return node.Name
	}
	return Command(node.Parent) + " " + node.Name
}

// text returns the page of a command after its name.
func text(node *kong.Node) string {
	var b strings.Builder
	fmt.Fprintf(&b, "## SYNOPSIS\n%s\n\n## DESCRIPTION\n%s\n\n", synopsis(node), plain(node.Help))
	if node.Detail != "" {
		fmt.Fprintf(&b, "%s\n\n", prose(node.Detail))
	}
	section(&b, "COMMANDS", visible(node), func(child *kong.Node) (term, what string) {
		return fmt.Sprintf("**%s**(%d)", plain(nameOf(child)), SectionCommands), child.Help
	})
	section(&b, "ARGUMENTS", node.Positional, func(value *kong.Value) (term, what string) {
		return argument(value), value.Help
	})
	own, grouped := flagsOf(node), map[string][]*kong.Flag{}
	own = slices.DeleteFunc(own, func(flag *kong.Flag) bool {
		if flag.Group != nil {
			grouped[flag.Group.Key] = append(grouped[flag.Group.Key], flag)
		}
		return flag.Group != nil
	})
	explained := func(flag *kong.Flag) (term, what string) { return option(flag), flag.Help }
	section(&b, "OPTIONS", own, explained)
	for _, key := range slices.Sorted(maps.Keys(grouped)) {
		section(&b, strings.ToUpper(key)+" OPTIONS", grouped[key], explained)
	}
	return b.String()
}

// section writes a list of terms and their meanings, if there are any.
func section[T any](b *strings.Builder, title string, items []T, item func(T) (term, what string)) {
	if len(items) == 0 {
		return
	}
	fmt.Fprintf(b, "## %s\n\n", title)
	for _, i := range items {
		term, what := item(i)
		fmt.Fprintf(b, "%s\n:   %s\n\n", term, plain(what))
	}
}

// synopsis returns the synopsis of a command.
func synopsis(node *kong.Node) string {
	words := []string{"**" + plain(Command(node)) + "**"}
	optional := false
	for _, flag := range flagsOf(node) {
		if flag.Required {
			words = append(words, option(flag))
		} else {
			optional = true
		}
	}
	if optional {
		words = append(words, plain("[")+"*options*"+plain("]"))
	}
	for _, value := range node.Positional {
		words = append(words, argument(value))
	}
	if len(visible(node)) > 0 {
		words = append(words, "*command*")
	}
	return strings.Join(words, " ")
}

// option returns a flag as it is typed.
func option(flag *kong.Flag) string {
	text := "**--" + plain(flag.Name) + "**"
	if flag.Short != 0 {
		text = "**-" + plain(string(flag.Short)) + "**, " + text
	}
	if !flag.IsBool() && !flag.IsCounter() {
		text += "=*" + plain(flag.FormatPlaceHolder()) + "*"
	}
	return text
}

// argument returns a positional argument as it is typed.
func argument(value *kong.Value) string {
	text := "*" + plain(value.Name) + "*"
	if value.IsCumulative() {
		text += " ..."
	}
	if !value.Required {
		return plain("[") + text + plain("]")
	}
	return text
}

// flagsOf lists a command's flags after those of its parents.
func flagsOf(node *kong.Node) (flags []*kong.Flag) {
	for _, group := range node.AllFlags(true) {
		flags = append(flags, group...)
	}
	return flags
}

// visible lists a command's subcommands that help lists too.
func visible(node *kong.Node) (children []*kong.Node) {
	for _, child := range node.Children {
		if !child.Hidden {
			children = append(children, child)
		}
	}
	return children
}
