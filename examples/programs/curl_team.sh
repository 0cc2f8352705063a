# A team without any library: a writer and a critic, asked by curl. curl_team.py makes an environment of it.
read -r row
seed=$(echo "$row" | sed 's/.*"seed": *\([0-9]*\).*/\1/')
number=$((4 + seed % 5))

ask() { # agent, text
  curl -s "$OPENAI_BASE_URL/chat/completions" -H 'content-type: application/json' \
    -d "{\"model\": \"$1\", \"messages\": [{\"role\": \"user\", \"content\": \"$2\"}]}" |
    sed 's/.*"content": "\([^"]*\)".*/\1/'
}

sentence=$(ask writer "Write a sentence of $number words.")
verdict=$(ask critic "Has this $number words, yes or no? $sentence")
if [ "$(echo "$sentence" | wc -w)" -eq "$number" ] && [ "$verdict" = yes ]; then
  echo "reward: 1"
else
  echo "reward: 0"
fi
