// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/jeoul/jeoul/cmd/jeoul/cmdkit"
	"github.com/jeoul/jeoul/internal/balancer/config"
	"github.com/jeoul/jeoul/internal/text/manpage"
)

// manCmd writes the manual pages.
type manCmd struct {
	Dir string `arg:"" type:"path" placeholder:"DIR" help:"The directory; it is created if it is missing."`
}

// Help explains how to read the pages.
func (manCmd) Help() string {
	return `Packages of jeoul bring the pages. Elsewhere:

    jeoul man ~/.local/share/man/man1
    man jeoul-backend-drain`
}

// manCommon ends the page of each command.
var manCommon = fmt.Sprintf(`## EXIT STATUS

%d
:   Done.

%d
:   An error, which is on the standard error output. Some commands have a status of their own for one.

%d
:   The command line cannot be meant.

## SEE ALSO
**jeoul**(1), **%s**(5)
`, exitOK, exitError, exitUsage, configPage)

// configPage is the name of the page about the configuration.
const configPage = "jeoul.yaml"

// Run writes the pages.
func (c manCmd) Run(_ context.Context, k *kong.Context) error {
	pages, err := manPages(k.Model)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return err
	}
	for _, page := range pages {
		if err := os.WriteFile(filepath.Join(c.Dir, page.Name), page.Roff, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// manPages makes the pages of all commands and of the configuration.
func manPages(app *kong.Application) ([]manpage.Page, error) {
	version, _ := cmdkit.Build()
	release := app.Name + " " + version
	var keys strings.Builder
	if err := config.Manual(&keys); err != nil {
		return nil, err
	}
	return append(manpage.Commands(app, release, manCommon),
			manpage.Document(configPage, manpage.SectionFiles, release, "the configuration of jeoul run",
				"## DESCRIPTION\n"+manpage.Text(keys.String())+
					"\n## SEE ALSO\n**jeoul-run**(1), **jeoul-config**(1)\n")),
		nil
}
