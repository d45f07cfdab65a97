// SPDX-License-Identifier: Apache-2.0

package report

import "sync"

// koreanTexts are the Korean texts of reports.
var koreanTexts = sync.OnceValue(func() *translator {
	return newTranslator()
})
