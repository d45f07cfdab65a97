// SPDX-License-Identifier: Apache-2.0

package report

// koreanWire are about packet-level loads: their parameters, tables and charts.
var koreanWire = []phrase{
	{"how many connections a second does each carry, and how evenly does it spread them", "각각 초당 연결을 몇 개 나르고, 얼마나 고르게 나누는가"},
	{"how many sessions a second does each carry, and how evenly does it spread them", "각각 초당 세션을 몇 개 나르고, 얼마나 고르게 나누는가"},
	{"how many queries a second does each carry, and how evenly does it spread them", "각각 초당 질의를 몇 건 나르고, 얼마나 고르게 나누는가"},
	{"how many packets a second does each carry, and how evenly does it spread them", "각각 초당 패킷을 몇 개 나르고, 얼마나 고르게 나누는가"},
	{"how many connections can each hold at a time", "각각 동시에 연결을 몇 개 유지할 수 있는가"}, {"what does it lose while it is flooded", "플러드를 받는 동안 무엇을 잃는가"},
	{"Connections held at a time, packet by packet", "패킷 단위로 본 동시 유지 연결"}, {"Connections without loss, packet by packet", "패킷 단위로 본 손실 없는 연결"}, {"Connections and sessions, packet by packet", "패킷 단위로 본 연결과 세션"}, {"Sessions under a SYN flood, packet by packet", "SYN 플러드 아래의 세션, 패킷 단위"},
	{"setup", "수립"}, {"session", "세션"}, {"capacity", "수용량"}, {"setup-peak", "최대 수립"}, {"session-peak", "최대 세션"}, {"setup-lossless", "무손실 수립"}, {"capacity-2M", "수용량(200만)"}, {"capacity-5M", "수용량(500만)"}, {"flooded", "플러드 중"}, {"connections", "연결"}, {"sessions", "세션"}, {"queries", "질의"}, {"packets", "패킷"}, {"Sessions", "세션"},
	{"connection setups", "연결 수립"}, {"connections that are held", "유지하는 연결"}, {"UDP datagrams", "UDP 데이터그램"}, {"DNS queries", "DNS 질의"}, {"SYNs", "SYN"},
	{"{n} to {n} by {n} offered", "초당 {1}부터 {2}까지 {3}씩 제공"}, {"{n} offered", "초당 {1} 제공"}, {"as much as possible offered", "가능한 만큼 제공"}, {"as much as possible", "가능한 만큼"}, {"search", "탐색"}, {"Steps", "단계"}, {"a SYN flood", "SYN 플러드"},
	// Tables.
	{"Medians over the valid repeats, in connections a second, and how many times the best of others they are.", "유효한 반복의 중앙값(초당 연결)과 다른 대상의 최선 대비 배수입니다."},
	{"Medians over the valid repeats, in sessions a second, and how many times the best of others they are.", "유효한 반복의 중앙값(초당 세션)과 다른 대상의 최선 대비 배수입니다."},
	{"Medians over the valid repeats, in queries a second, and how many times the best of others they are.", "유효한 반복의 중앙값(초당 질의)과 다른 대상의 최선 대비 배수입니다."},
	{"Medians over the valid repeats, in packets a second, and how many times the best of others they are.", "유효한 반복의 중앙값(초당 패킷)과 다른 대상의 최선 대비 배수입니다."},
	{"Uneven: the greatest difference of a server's {} from an equal share.", "불균등: 균등 몫 대비 서버별 {1}의 최대 편차."},
	{"bare is the limit for a balancer whose servers answer directly, direct what the tester itself reaches.", "bare는 서버가 직접 응답하는 밸런서의 한계이고, direct는 시험기 자체가 도달하는 값입니다."},
	{"Rates", "속도"}, {"Uneven", "불균등"}, {"SYNs of the flood", "플러드의 SYN"}, {"Setup p50", "수립 p50"}, {"Setup p99", "수립 p99"}, {"Response p50", "응답 p50"}, {"Response p99", "응답 p99"},
	{"What became of them", "연결이 어떻게 되었는가"}, {"How many were begun, and those that came to nothing, by cause; medians over the valid repeats.", "시작한 수와 원인별 실패 수이며, 유효한 반복의 중앙값입니다."},
	{"Another server: a packet of the connection came to a server other than the one that had answered its SYN.", "다른 서버: 연결의 패킷이 그 SYN에 응답한 서버가 아닌 다른 서버로 왔습니다."},
	{"At servers: through a proxy, those that were established with it may be more; a rate counts the fewer of the two.", "서버 도달: 프록시를 지나면 프록시와 수립된 연결이 더 많을 수 있으며, 속도는 둘 중 적은 쪽을 셉니다."},
	{"Begun", "시작"}, {"Established", "수립"}, {"At servers", "서버 도달"}, {"Completed", "완료"}, {"No answer", "무응답"}, {"Another server", "다른 서버"}, {"Checksum", "체크섬"}, {"Not begun", "시작 못 함"},
	{"Established at each rate", "속도별 수립"}, {"Evenness at each rate", "속도별 균등성"}, {"{} a second at each offered rate; medians over the valid repeats.", "{1}: 제공 속도별 초당 수이며, 유효한 반복의 중앙값입니다."},
	{"The greatest difference of a server's {} from an equal share, in per cent.", "균등 몫 대비 서버별 {1}의 최대 편차(%)입니다."},
	{"How far each got", "각각 어디까지 갔는가"}, {"Without loss up to", "무손실 한계"}, {"Most", "최대"}, {"Latencies: of the last step without loss.", "지연: 손실 없는 마지막 단계의 값입니다."},
	{"The highest offered rate up to which at most {n} % failed at every step, the most {} a second of all steps, and the worst evenness of all.", "모든 단계에서 실패가 {1} % 이하인 최고 제공 속도, 전체 단계 중 초당 {2}의 최댓값, 가장 나쁜 균등성입니다."},
	{"Connections held at a time", "동시에 유지한 연결"}, {"Connections that were set up and held together; at the end each one is asked, and has to be answered by its own server.", "수립하여 함께 유지한 연결입니다. 끝에 하나하나 물으며, 저마다 자기 서버가 응답해야 합니다."},
	{"Remembered: what the balancer kept for them at most, as it tells itself; Bound: what it has room for; Tables: the memory for that.", "기억됨: 밸런서가 스스로 말하는 최대 보관 수. 한도: 밸런서에 있는 자리. 표: 그것을 위한 메모리."},
	{"Machine: by how much the machine's available memory fell meanwhile, which is more than tables where the kernel, or a process, allocates as it goes.", "기계: 그동안 기계의 가용 메모리가 줄어든 양. 커널이나 프로세스가 그때그때 할당하면 표보다 큽니다."},
	{"Asked for", "요구"}, {"Held", "유지"}, {"Proven alive", "생존 확인"}, {"Tables", "표"}, {"Set up", "수립 속도"},
	{"Packets lost to clients", "클라이언트 방향 유실 패킷"}, {"Packets lost to servers", "서버 방향 유실 패킷"}, {"Packets received", "받은 패킷"}, {"Packets sent", "보낸 패킷"}, {"Retransmitted", "재전송"}, {"Tester behind ms max", "시험기의 최대 지체, ms"},
	{"Strange late", "이상: 늦음"}, {"Strange duplicate", "이상: 중복"}, {"Strange stranger", "이상: 모르는 상대"}, {"Strange checksum", "이상: 체크섬"}, {"Strange malformed", "이상: 형식"}, {"Strange wrong backend", "이상: 다른 서버"}, {"Strange unacknowledgeable", "이상: 확인할 수 없는 번호"},
	// Charts.
	{"{} offered, and established", "{1}: 제공과 수립"}, {"More is better, up to the dotted line: there nothing is lost. Medians over the repeats.", "점선까지는 클수록 좋으며, 점선에서는 잃는 것이 없습니다. 반복의 중앙값입니다."},
	{"connections offered a second", "초당 제공한 연결"}, {"sessions offered a second", "초당 제공한 세션"}, {"queries offered a second", "초당 제공한 질의"}, {"packets offered a second", "초당 제공한 패킷"},
	{"connections established a second", "초당 수립한 연결"}, {"sessions established a second", "초당 마친 세션"}, {"queries established a second", "초당 응답한 질의"}, {"packets established a second", "초당 도달한 패킷"},
	{"connections of a server a second", "서버별 초당 연결"}, {"sessions of a server a second", "서버별 초당 세션"}, {"queries of a server a second", "서버별 초당 질의"}, {"packets of a server a second", "서버별 초당 패킷"},
	{"server {n}", "서버 {1}"}, {"Connections by server: {}", "서버별 연결: {1}"}, {"Sessions by server: {}", "서버별 세션: {1}"}, {"Queries by server: {}", "서버별 질의: {1}"}, {"Packets by server: {}", "서버별 패킷: {1}"},
	{"Where the lines are one, every server gets as much as the others.", "선이 하나로 겹치면 모든 서버가 같은 몫을 받습니다."}, {"µs of balancer CPU each", "건당 밸런서 CPU, µs"},
	{"Connections that were alive in the end", "끝에 살아 있던 연결"}, {"More is better, up to those asked for. Bars are medians, whiskers the lowest and highest repeat.", "요구한 수까지는 클수록 좋습니다. 막대는 중앙값, 수염은 반복의 최소와 최대입니다."},
	// How to read them.
	{"Clients and servers without sockets", "소켓 없는 클라이언트와 서버"}, {"Both are eBPF programs on the hosts' devices, which speak TCP packet by packet. So neither is the limit, and what is seen is the balancer, up to what the tester itself reaches on this machine: that is direct.", "둘 다 호스트의 장치에서 패킷 단위로 TCP를 말하는 eBPF 프로그램입니다. 그래서 어느 쪽도 한계가 아니며, 시험기 자체가 이 기계에서 도달하는 값(direct)까지는 밸런서가 보입니다."},
	{"An XDP program in the balancer's place that rewrites MAC addresses and does nothing else. Its packets take as many hops as those of a balancer whose servers answer directly, so it is the most that such a balancer can reach here. A balancer that answers come back through sends every packet over two hops more.", "밸런서 자리에서 MAC 주소만 바꾸는 XDP 프로그램입니다. 그 패킷은 서버가 직접 응답하는 밸런서와 같은 홉을 거치므로, 그런 밸런서가 여기서 도달할 수 있는 최대입니다. 응답이 되돌아 지나는 밸런서는 모든 패킷을 두 홉 더 보냅니다."},
	{"Offered and established", "제공과 수립"}, {"Offered is the rate that was asked for. Established are handshakes that were completed (sessions: closed by both sides), by the time in which the step's were begun. A SYN that was lost is sent again after a second.", "제공은 요구한 속도입니다. 수립은 완료된 핸드셰이크(세션은 양쪽이 닫은 것)를 그 단계의 연결을 시작한 시간으로 나눈 것입니다. 잃어버린 SYN은 1초 뒤 다시 보냅니다."},
	{"Bursts", "버스트"}, {"A peak is looked for in several bursts, and the fastest counts, of every subject alike: what else a machine does, neighbours on the same processor included, only slows them down. samples in the results has all of them.", "최댓값은 버스트 여러 번에서 찾으며, 모든 대상에 똑같이 가장 빠른 것을 셉니다. 같은 프로세서의 이웃을 포함해 기계가 하는 다른 일은 버스트를 늦출 뿐이기 때문입니다. 모든 버스트는 결과의 samples에 있습니다."},
	{"the fastest of {n} bursts", "버스트 {1}번 중 가장 빠른 것"}, {"{n} s between bursts", "버스트 사이 {1}초"}, {"Pause", "쉼"},
	{"Evenness", "균등성"}, {"The greatest difference of a server's connections from an equal share. A hash (maglev) draws lots, so its servers differ by chance; round robin need not.", "균등 몫 대비 서버별 연결의 최대 편차입니다. 해시(maglev)는 제비를 뽑으므로 서버마다 우연히 다르지만, 라운드 로빈은 그럴 까닭이 없습니다."},
	// The document's figures.
	// A citation stays as it is.
	{"Jang Dong-won and Cho Pyung-dong, \"Load Balancer Performance Testing and Analysis for Improving Web Server Performance\" (ETRI)", "Jang Dong-won and Cho Pyung-dong, \"Load Balancer Performance Testing and Analysis for Improving Web Server Performance\" (ETRI)"},
	{"a layer-4 switch with two Fast Ethernet ports, about 2001; tester SmartBits 2000, 14 ML7710 cards, SmartTCP 1.1; 7 client ports and 7 servers, round robin", "고속 이더넷 포트 두 개의 4계층 스위치, 2001년경; 시험기 SmartBits 2000, ML7710 카드 14장, SmartTCP 1.1; 클라이언트 포트 7개와 서버 7대, 라운드 로빈"},
	{"what", "내용"}, {"offered a second", "초당 제공"}, {"reached a second", "초당 도달"}, {"without loss up to", "무손실 한계"}, {"connection setup", "연결 수립"}, {"not said", "언급 없음"},
	{"{n} to {n} by {n}, {n} at each", "{1}부터 {2}까지 {3}씩, 단계마다 {4}"}, {"{n} to {n}", "{1}부터 {2}까지"},
	{"Its figures 4 to 7 are charts; these are the numbers that its text gives.", "문서의 그림 4–7은 도표이며, 이것은 본문에 나오는 수치입니다."}, {"Connections were spread evenly over the 7 servers at every rate up to the highest.", "연결은 최고 속도까지 모든 속도에서 서버 7대에 고르게 나뉘었습니다."},
}

// koreanWireVerdicts are the sentences on packet-level loads.
var koreanWireVerdicts = []phrase{
	{"{}: targets that hold: {}.", "{1}: 지켜진 목표: {2}."}, {"{}: targets that are missed: {}.", "{1}: 지켜지지 않은 목표: {2}."},
	{"{}, connections a second: {}.", "{1}, 초당 연결: {2}."}, {"{}, sessions a second: {}.", "{1}, 초당 세션: {2}."}, {"{}, queries a second: {}.", "{1}, 초당 질의: {2}."}, {"{}, packets a second: {}.", "{1}, 초당 패킷: {2}."},
	{"{} at least {n} × {} ({n} ×)", "{1} ≥ {3}의 {2}배({4}배)"},
	{"{}: rates that each carried without loss: {}.", "{1}: 손실 없이 나른 속도: {2}."},
	{"{} all of them ({n}/s)", "{1} 전부(초당 {2})"}, {"{} up to {n}/s (at most {n}/s)", "{1} 초당 {2}까지(최대 초당 {3})"}, {"{} lost some at every rate (at most {n}/s)", "{1} 모든 속도에서 손실(최대 초당 {2})"},
	{"{} evenly, within {n} % at every step (at worst {n} %)", "{1} 모든 단계에서 균등, {2} % 이내(최악 {3} %)"},
	{"{}: connections alive in the end: {}.", "{1}: 끝에 살아 있던 연결: {2}."},
	{"held and proven by {} {n} of {n} ({n} remembered)", "{1}: {3} 중 {2} 유지하고 생존 확인({4} 기억)"}, {"held and proven by {} {n} of {n}", "{1}: {3} 중 {2} 유지하고 생존 확인"},
	{"{} {n} of {n} ({n} remembered)", "{1} {3} 중 {2}({4} 기억)"}, {"{} {n} of {n}", "{1} {3} 중 {2}"},
	{"{} lost {n} of {n} beside {n} SYNs/s", "{1} {3} 중 {2} 유실(초당 SYN {4}개 동안)"}, {"{} lost {n} of {n}", "{1} {3} 중 {2} 유실"}, {"{}, the others: {}.", "{1}, 나머지: {2}."},
}

// koreanWireNotes are notes on packet-level loads.
var koreanWireNotes = []phrase{
	{"clients and servers are eBPF programs on the hosts' devices (jeoul wire): packets without sockets. The switch forwards in native XDP, by MAC address, so every subject's packets have the same way: client, switch, balancer, switch, server, and, where it answers directly, switch, client", "클라이언트와 서버는 호스트의 장치에 붙은 eBPF 프로그램(jeoul wire), 곧 소켓 없는 패킷. 스위치는 네이티브 XDP로 MAC 주소에 따라 전달하므로 모든 대상의 패킷이 같은 길을 감: 클라이언트, 스위치, 밸런서, 스위치, 서버, 그리고 직접 응답하면 스위치, 클라이언트"},
	{"a subject that works in XDP gets frames; one that works in the kernel, or is a process, gets socket buffers, which the devices make of them, and make frames of what it sends", "XDP에서 일하는 대상은 프레임을 받음; 커널에서 일하거나 프로세스인 대상은 장치가 프레임으로 만든 소켓 버퍼를 받으며, 보내는 것은 장치가 다시 프레임으로 만듦"},
	{"neighbours are real: the kernel behind each port answers ARP, nothing is preset. What clients send, they send to the balancer's MAC address, or, as direct, to the servers' in turn", "이웃은 진짜: 포트마다 뒤의 커널이 ARP에 응답하며 미리 정한 것이 없음. 클라이언트는 밸런서의 MAC 주소로, direct에서는 서버들의 MAC 주소로 차례로 보냄"},
	{"client number N has the addresses 198.19.N.1 to 198.19.N.254, to which the balancer has a route through it", "클라이언트 N의 주소는 198.19.N.1부터 198.19.N.254까지이며 밸런서에 그쪽을 지나는 경로가 있음"},
	{"the sender is tied to core {n}, and all packet work follows it there, the tester's, the switch's and the balancer's; the balancer's processes have the last core, with the nice value {n}. A rate is of one core that does everything; the balancer's CPU is its own, as the kernel polls its device (tracepoint napi_poll)", "송신자는 코어 {1}에 고정되고 시험기, 스위치, 밸런서의 패킷 작업도 모두 그 코어에서 함; 밸런서의 프로세스는 마지막 코어를 쓰며 nice 값은 {2}. 속도는 모든 일을 하는 코어 하나의 것; 밸런서의 CPU는 커널이 그 장치를 폴링하는 곳(tracepoint napi_poll)에서 잰 자체의 것"},
	{"offered is the rate that the tester was asked for, begun what it did; established are completed handshakes. What came late, twice, or from nobody is counted apart", "제공은 시험기에 요구한 속도, 시작은 실제로 한 것; 수립은 완료된 핸드셰이크. 늦거나 두 번 오거나 모르는 상대에게서 온 것은 따로 셈"},
	{"the kernel sends at most {n} frames into a device's queue before it drops them; what does not fit there is lost, and sent again by the tester after a second", "커널은 장치의 큐에 프레임을 최대 {1}개 보내고 나머지는 버림; 들어가지 못한 것은 유실되며 시험기가 1초 뒤 다시 보냄"},
	{"jeoul's tables have room for a quarter more flows than the longest step begins (flows.limit), so that what a step leaves behind is not the limit of the next", "jeoul의 표에는 가장 긴 단계가 시작하는 것보다 4분의 1 많은 플로의 자리가 있어(flows.limit) 한 단계가 남긴 것이 다음 단계의 한계가 되지 않음"},
	{"not a balancer but the limit for one: a program in {} that rewrites MAC addresses, with no state, health, counters or configuration", "밸런서가 아니라 밸런서의 한계: {1}에서 MAC 주소만 바꾸며 상태, 상태 검사, 카운터, 구성이 없는 프로그램"},
	{"what it kept: TCP sockets on the balancer, half-open and closing ones included", "보관한 것: 반쯤 열린 것과 닫히는 것을 포함한 밸런서의 TCP 소켓"}, {"what it kept: connections that the balancer's kernel tracks (nf_conntrack)", "보관한 것: 밸런서의 커널이 추적하는 연결(nf_conntrack)"}, {"what it kept: flows in jeoul's tables, as its status has them", "보관한 것: jeoul 표의 플로(status 기준)"},
	{"connections that the balancer's kernel tracks (nf_conntrack)", "밸런서의 커널이 추적하는 연결(nf_conntrack)"}, {"TCP sockets on the balancer, half-open and closing ones included", "반쯤 열린 것과 닫히는 것을 포함한 밸런서의 TCP 소켓"}, {"flows in jeoul's tables, as its status has them", "jeoul 표의 플로(status 기준)"},
	{"frames that found a queue full: {}", "꽉 찬 큐를 만난 프레임: {1}"}, {"the switch to {} {n}", "스위치에서 {1} 방향 {2}"}, {"the step was ended early", "단계가 일찍 끝남"},
	{"of {n} connections that were begun, none came to anything", "시작한 연결 {1}개가 하나도 이루어지지 않음"}, {"of {n} sessions that were begun, none came to anything", "시작한 세션 {1}개가 하나도 이루어지지 않음"}, {"of {n} queries that were begun, none came to anything", "시작한 질의 {1}건이 하나도 이루어지지 않음"}, {"of {n} packets that were begun, none came to anything", "시작한 패킷 {1}개가 하나도 이루어지지 않음"},
	{"it was full, so this is how many it holds, and not how fast it sets them up: {}", "가득 찼으므로 이것은 얼마나 빨리 설정하는지가 아니라 몇 개를 유지하는지임: {1}"}, {"it was full: {}", "가득 찼음: {1}"}, {"{n} of at most {n} {}", "최대 {2} 중 {1}: {3}"},
	{"the tester itself did not keep up: it began {n} {} a second, at worst {} late", "시험기 자체가 따라가지 못함: 초당 시작한 {2} {1}, 최대 {3} 늦음"},
	{"rates that were tried: {}", "시도한 속도: {1}"}, {"at {n}/s it was the tester that did not keep up: what is in between may carry more than was found", "초당 {1}에서는 시험기가 따라가지 못함: 사이에 있는 것은 찾은 것보다 더 나를 수 있음"}, {"{n}/s lost {n} %", "초당 {1}: 유실 {2} %"}, {"no rate from {n} a second on lost at most {}: {}", "초당 {1} 이상에서 유실이 {2} 이하인 속도가 없음: {3}"},
	{"packets, with the tester's sender, and the processes of what is weighed need a core each, and this machine has one", "시험기의 송신자를 포함한 패킷 작업과 대상의 프로세스에 코어가 하나씩 필요하나 이 기계의 코어는 하나임"},
	{"{} balances no UDP", "{1}: UDP는 분산하지 않음"},
}
