// SPDX-License-Identifier: Apache-2.0

package testdocs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// step matches a line of a walk: a function, and the file that declares it.
var step = regexp.MustCompile("(?m)^[0-9]+\\. `([A-Za-z_.]+)` \\(`([a-z/]+[a-z_]+\\.[a-z]+)`\\)")

// numbered matches the beginning of any step.
var numbered = regexp.MustCompile(`(?m)^[0-9]+\. `)

const (
	walks     = 4
	mostSteps = 12
)

// TestWalks checks that each function of a walk is declared in the file that the page names.
func TestWalks(t *testing.T) {
	const root = "../../.."
	page, err := os.ReadFile(filepath.Join(root, "docs/architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(page), "\n## Four walks for newcomers\n")
	if !found {
		t.Fatal("docs/architecture.md has no walks for newcomers")
	}
	section, _, _ := strings.Cut(rest, "\n## ")
	all := strings.Split(section, "\n### ")[1:]
	if len(all) != walks {
		t.Errorf("there are %d walks, want %d", len(all), walks)
	}
	for _, walk := range all {
		title, _, _ := strings.Cut(walk, "\n")
		steps := step.FindAllStringSubmatch(walk, -1)
		if lines := len(numbered.FindAllString(walk, -1)); lines == 0 || lines > mostSteps || lines != len(steps) {
			t.Errorf("%s: it has %d steps, %d of which name a function and its file; want 1 to %d, all of which do",
				title, lines, len(steps), mostSteps)
		}
		for _, s := range steps {
			if declared, err := declares(filepath.Join(root, s[2]), s[1]); err != nil || !declared {
				t.Errorf("%s: %s does not declare %s (%v)", title, s[2], s[1], err)
			}
		}
	}
}

// declares reports whether a file declares a function, a method (Type.Method), or a C function.
func declares(file, name string) (bool, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return false, err
	}
	if filepath.Ext(file) != ".go" {
		return regexp.MatchString(`(?m)^static .*\b`+regexp.QuoteMeta(name)+`\(`, string(text))
	}
	parsed, err := parser.ParseFile(token.NewFileSet(), file, text, parser.SkipObjectResolution)
	if err != nil {
		return false, err
	}
	for _, d := range parsed.Decls {
		if f, is := d.(*ast.FuncDecl); is && nameOf(f) == name {
			return true, nil
		}
	}
	return false, nil
}

// nameOf returns a function's name, preceded by the type of its receiver if it has one.
func nameOf(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	of := f.Recv.List[0].Type
	if pointer, is := of.(*ast.StarExpr); is {
		of = pointer.X
	}
	if named, is := of.(*ast.Ident); is {
		return named.Name + "." + f.Name.Name
	}
	return f.Name.Name
}
