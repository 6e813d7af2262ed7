"""Rosters and exports in the form in which platforms write them."""

CANVAS = """\
Student,ID,SIS User ID,SIS Login ID,Integration ID,Section,Heads (77),Quiz (78),\
Final Score
,,,,,,Manual Posting,,
    Points Possible,,,,,,10.00,5.00,(read only)
"Lovelace, Ada",101,S1,ada@uni.edu,,CS 1,,4.00,80
"O'Brien, Seán",102,S2,sean@uni.edu,,CS 1,3.00,,60
"=Evil, Eve",103,S3,eve@uni.edu,,CS 2,,,
"""
MOODLE = """\
Identifier,Full name,ID number,Email address,Status,Grade,Maximum Grade,\
Grade can be changed,Last modified (submission),Last modified (grade),Feedback comments
Participant 901,Ada Lovelace,S1,ada@uni.edu,Submitted for grading1 day 2 hours late,,\
5.00,Yes,"Friday, 2 October 2026, 11:59 PM",-,
Participant 902,Seán O'Brien,S2,sean@uni.edu,Submitted for grading,3.00,5.00,Yes,\
"Thursday, 1 October 2026, 9:00 AM","Monday, 5 October 2026, 9:00 AM",well done
Participant 903,Eve Evil,S3,eve@uni.edu,No submission,,5.00,Yes,-,-,
"""
GITHUB = """\
"identifier","github_username","github_id","name"
"ada@uni.edu","Ada-Love","11","Ada Lovelace"
"S2","love","12","Seán O'Brien"
"S3","","",""
"""
PLAIN = """\
id;first name;last name;email;submitted
S1;Ada;Lovelace;ada@uni.edu;2026-10-02 00:59 +02:00
S2;Seán;O'Brien;sean@uni.edu;
S3;Eve;Evil;eve@uni.edu;
"""
GRADESCOPE = """\
First Name,Last Name,SID,Email,Role,Section
Ada,Lovelace,S1,ada@uni.edu,Student,
Seán,O'Brien,,sean@uni.edu,Student,
Grace,Hopper,,grace@uni.edu,Instructor,
"""
METADATA = """\
submission_1:
  :submitters:
  - :name: Ada Lovelace
    :sid: S1
    :email: ada@uni.edu
  :created_at: 2026-10-02 21:13:47.644186000 Z
  :score: 0.0
  :results: !ruby/object:Hash
    tests: [{name: x}]
submission_2:
  :submitters:
  - :name: Seán O'Brien
    :sid:
    :email: sean@uni.edu
  - :name: Eve Evil
    :sid: S3
"""

# With the columns that the platforms write today: see `mha_lib.grade.roster`.
FIRST_LAST = """\
LastName,FirstName,ID,SIS User ID,SIS Login ID,Section,Heads (77),Current Score
,,,,,,Manual Posting,
    Points Possible,,,,,,10.00,(read only)
Lovelace,Ada,101,S1,ada@uni.edu,One,,
,Teller,102,S2,teller@uni.edu,One,,
Student,Test,103,,5f0e1c,One,,
"""
BLIND = """\
Identifier,Status,Grade,Maximum Grade,Grade can be changed,Last modified (submission),\
Last modified (grade),Feedback comments
Participant 901,Submitted for grading - 1 day 2 hours late,,10.00,Yes,-,-,
Participant 902,No submission,,10.00,Yes,-,-,
"""
GRADES = """\
assignment_name,assignment_url,starter_code_url,github_username,roster_identifier,\
student_repository_name,student_repository_url,submission_timestamp,points_awarded,\
points_available,group_name
Heads,u,s,Ada-Love,ada@uni.edu,a2-Ada-Love,r,2026-10-01 21:59:00 UTC,0,10,
Heads,u,s,love,,uni/a2-pairs,r,,0,10,pairs
"""
GRADED = """\
First Name,Last Name,SID,Email,Sections,Total Score,Max Points,Status,Submission ID,\
Submission Time,Lateness (H:M:S)
Ada,Lovelace,S1,ada@uni.edu,,,10,Ungraded,55,2026-10-01 16:59:00 -0500,00:00:00
Seán,O'Brien,,sean@uni.edu,,,10,Missing,,,
"""
